# `make` alone tells what there is.

# The version of the tools, so that every machine finds the same faults.
STATICCHECK   := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.9.0
PROMTOOL      := go run github.com/prometheus/prometheus/cmd/promtool@v0.316.0

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The race detector needs a C compiler; Go turns cgo off where there is none.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

.PHONY: help build test test-long test-repeat test-programs test-failpoints test-build test-compute test-alone test-long-compute test-long-alone test-bench evidence lint golangci vulncheck bench engines fuzz mutants model histories way memory quorum vm browser release release-check packages systemd-check image image-check chart soak alerts clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build a static binary into ./bin
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/cronclave ./cmd/cronclave

# Tests with real processes, or with bounds in real time: beside others that compile or compute, a process would take longer to start than the second
# that lies between two of its ticks. They run when all is built. The other packages only compute.
ALONE   := ./cmd/cronclave ./internal/web/api ./internal/process ./internal/journal ./internal/logging ./internal/web/oidc ./internal/redisconn ./internal/safefile ./internal/warden
COMPUTE  = $(filter-out $(ALONE),$(subst $(shell go list -m),.,$(shell go list ./...)))
# integration is a module of its own.
INTEGRATION_ALONE  := ./cluster ./redis ./locks ./process ./web ./soak ./harness
INTEGRATION_COMPUTE = $(filter-out $(INTEGRATION_ALONE) ./architecture ./docs,$(subst $(shell go -C integration list -m),.,$(shell go -C integration list ./...)))

# vet, the rules of the architecture and the tests of the pages are in lint.
FLAGS = -vet=off -count=1 -timeout 35m $(RACE)
ROOT_TEST = CRONCLAVE_TEST_INSTALL=1 go test $(FLAGS)
INTEGRATION_TEST = CRONCLAVE_TEST_INSTALL=1 go test -C integration $(FLAGS)
# Tests with real processes wait for most of their time: two packages at a time, with six tests each. In integration a test has several processes: one package at a time, with
# four tests. With two packages of three tests, two tests were late, and it took as long.
SIX  = -p 2 -parallel 6
FOUR = -p 1 -parallel 4

# All of it is compiled with the same flags, so that each package is compiled once. The Lua VM of the embedded Redis does without the race detector: each script runs in one
# goroutine, and the tests take a third less time. No package with generic functions could do so: the linker may take its copies for those of other packages.
export PLAIN_GOFLAGS := $(shell go env GOFLAGS)
# Nothing is written for debuggers: a stack trace needs none of it, and compiling and linking take a tenth less. This replaces -ldflags and -gcflags of your own GOFLAGS.
TEST_GOFLAGS := $(PLAIN_GOFLAGS) '-ldflags=-s -w' -gcflags=all=-dwarf=false $(if $(RACE),-race '-gcflags=github.com/yuin/gopher-lua/...=-race=false -dwarf=false')
PROGRAM_RACE := -race=$(if $(filter 0,$(CRONCLAVE_TEST_RACE)),false,$(if $(RACE),true,false))
test-programs test-failpoints test-build test-compute test-alone test-long-compute test-long-alone test-bench evidence lint: export GOFLAGS := $(TEST_GOFLAGS)

# make -j would start processes beside tests that compute.
.NOTPARALLEL:

# The programs that the tests of integration run, built once for all of its packages.
PROGRAMS := $(CURDIR)/bin/programs
test-alone test-long-alone: export CRONCLAVE_TEST_PROGRAMS := $(PROGRAMS)
test-programs:
	go build $(PROGRAM_RACE) -o $(PROGRAMS)/cronclave ./cmd/cronclave
	go -C integration build $(PROGRAM_RACE) -o $(PROGRAMS)/scribe ./harness/testdata/scribe
# Only slow tests kill a replica at a failpoint.
test-failpoints:
	go build $(PROGRAM_RACE) -tags failpoints -o $(PROGRAMS)/cronclavefailpoints ./cmd/cronclave

# All that the tests run, and the tests, so that nothing is compiled beside them. go list compiles without linking, which go test does again anyway.
test-build: test-programs
	$(if $(RACE),,@echo 'note: no C compiler, so without the race detector')
	go list $(RACE) -test -export ./... >/dev/null
	go -C integration list $(RACE) -test -export ./... >/dev/null

# There is memory, and much is garbage.
test-compute test-alone test-long-compute test-long-alone: export GOGC := 400
# A program with the race detector pauses for a second at its end, by default: there are hundreds.
test-compute test-alone test-long-compute test-long-alone: export GORACE := $(GORACE) atexit_sleep_ms=0

test: test-build test-compute test-alone ## run the quick tests, in seven minutes on two cores; a real Redis is brought along (container, else redis-server), and PostgreSQL; root gets them installed

test-long: test-build test-long-alone test-long-compute test-bench ## run the tests that -short skips: slow ones with real processes, a month of five simulated replicas, a day of 104 jobs, the model of a quorum

# SHORT= for all of them, the slow ones too.
SHORT := -short

test-compute:
	$(ROOT_TEST) $(SHORT) -parallel 4 $(COMPUTE); root=$$?; $(INTEGRATION_TEST) $(SHORT) -parallel 4 $(INTEGRATION_COMPUTE) && exit $$root

test-bench: ## run the tests of the benchmarks, which compile the locks of other libraries
	go -C bench test -count=1 ./...

test-alone: test-programs $(if $(SHORT),,test-failpoints)
	$(ROOT_TEST) $(SIX) $(SHORT) $(ALONE); root=$$?; $(INTEGRATION_TEST) $(FOUR) $(SHORT) $(INTEGRATION_ALONE) && exit $$root

test-long-compute:
	$(ROOT_TEST) $(shell integration/tiers.sh slow . $(COMPUTE))
	$(INTEGRATION_TEST) $(shell integration/tiers.sh slow integration $(INTEGRATION_COMPUTE))
	GOGC=800 GOFLAGS="$$PLAIN_GOFLAGS" $(ROOT_TEST) -race=false -v $(shell integration/tiers.sh whole . $(COMPUTE))
	GOGC=800 GOFLAGS="$$PLAIN_GOFLAGS" $(INTEGRATION_TEST) -race=false -v $(shell integration/tiers.sh whole integration $(INTEGRATION_COMPUTE))

test-long-alone: test-programs test-failpoints
	$(ROOT_TEST) $(SIX) $(shell integration/tiers.sh slow . $(ALONE)); root=$$?; $(INTEGRATION_TEST) $(FOUR) $(shell integration/tiers.sh slow integration $(INTEGRATION_ALONE)) && exit $$root

N := 10

test-repeat: ## run make test N=10 times, each from a fresh clone with a cold build cache (hours; goes on after an interruption); BUSY=2 CACHE=DIR LOGS=DIR, see .ci/repeat
	@BUSY='$(BUSY)' CACHE='$(CACHE)' LOGS='$(LOGS)' .ci/repeat $(N)

lint: ## vet, gofmt, staticcheck, and the rules on who may import what
	GOFLAGS= GOBIN=$(CURDIR)/bin go install $(STATICCHECK)
	go vet ./...
	go -C integration vet ./...
	go -C integration vet -tags mutants ./mutants
	go vet -tags failpoints ./scheduler/...
	go -C bench vet ./...
	go -C integration/browser vet -tags browser ./...
	go -C packaging vet ./...
	@files=$$(gofmt -l .); test -z "$$files" || { echo "not formatted by gofmt:"; echo "$$files"; exit 1; }
	bin/staticcheck ./...
	cd integration && ../bin/staticcheck ./...
	cd bench && ../bin/staticcheck ./...
	go test -C integration -count=1 ./architecture ./docs

# The list of vulnerabilities is at vuln.go.dev alone, so a machine without the internet cannot look.
vulncheck: ## look for known vulnerabilities in the code that the program calls
	@if curl -fsS -m 20 -o /dev/null https://vuln.go.dev/index/db.json; then go run $(GOVULNCHECK) ./...; \
	else echo 'NOT CHECKED for known vulnerabilities: https://vuln.go.dev cannot be reached from here'; fi

golangci: ## the wider set of linters in .golangci.yml (the first time builds golangci-lint, which takes minutes)
	go run $(GOLANGCI_LINT) run ./...
	cd integration && go run $(GOLANGCI_LINT) run ./...
	cd bench && go run $(GOLANGCI_LINT) run ./...

bench: ## run the benchmarks, then our locks beside those of other libraries (needs redis-server; six minutes)
	go test -run '^$$' -bench . -benchmem -timeout 30m ./...
	go test -C integration -run '^$$' -bench . -benchmem -timeout 30m ./...
	go -C bench run .

# SUITE:PACKAGE of Debian; the versions in trixie and sid move. To test your own server, pass its absolute path: make engines ENGINES=/usr/local/bin/valkey-server
ENGINES := bookworm:redis trixie:redis trixie:valkey sid:redis sid:valkey

engines: ## run the tests that depend on the server on Redis 7.0 and 8.0, and Valkey 8.1 and 9.1, from packages of Debian that are unpacked into ./bin
	RACE=$(RACE) integration/engines.sh $(ENGINES)

FUZZTIME := 1m

fuzz: ## run every fuzz target, those of the scripts in Redis among them, for a minute each; FUZZTIME=10s for less
	@set -e; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		for target in $$(go test -C $$dir -list '^Fuzz' . | grep '^Fuzz'); do \
			echo "== $$dir $$target"; \
			go test -C $$dir -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .; \
		done; \
	done

evidence: ## write the tests and mutants of each promise to bin/evidence.md
	@mkdir -p bin
	go test -C integration -count=1 -run '^TestEvidence$$' ./mutants -page $(CURDIR)/bin/evidence.md

mutants: ## break each promise on purpose and demand that its test notices, for hours; RUN=NAME runs one
	CRONCLAVE_TEST_INSTALL=1 go test -C integration -tags mutants -count=1 -v -timeout 0 -run 'TestMutants/$(RUN)' ./mutants

model: ## search the model of the protocol for broken promises, and compare it with the scripts; about eight minutes and 4 GB of memory
	go test -C integration -count=1 -v -timeout 30m -run 'TestFullModel|TestModelAgreesWithScripts' ./model -full -traces 10000

histories: ## record 120,000 operations on locks over bad links, a third as many on a quorum, and judge them; about twenty minutes
	CRONCLAVE_TEST_INSTALL=1 go test -C integration $(RACE) -count=1 -v -timeout 120m -run 'TestHistories' ./locks -histories 120000

way: ## count the functions, files and packages that a tick, a renewal, a trigger request and a status run through; two minutes. LIST=tick prints them
	@server=$$(command -v redis-server) || { [ -x bin/way/bin/redis-server ] || integration/redis-root.sh bin/way >/dev/null; server=$(CURDIR)/bin/way/bin/redis-server; }; \
	go -C integration run ./way -root $(CURDIR) -redis-server "$$server" -list '$(LIST)'

memory: ## measure what is in Redis with 1,000 jobs after 100,000 runs; about a minute
	CRONCLAVE_TEST_INSTALL=1 go test -C integration -count=1 -v -timeout 20m -run 'TestMemoryInRedisIsBounded' ./redis -memory 100000

quorum: ## run only the tests of quorums of independent masters; about six minutes
	CRONCLAVE_TEST_INSTALL=1 go test -race -count=1 -timeout 30m -run 'Quorum' ./locking ./internal/lease/quorum ./scheduler
	CRONCLAVE_TEST_INSTALL=1 go test -C integration -race -count=1 -timeout 30m -run 'Quorum' ./redis ./locks ./cluster ./model/quorum

vm: ## run the tests of processes in a small virtual machine that has cgroup v2, as root and as nobody; ten minutes, fewer with KVM
	CRONCLAVE_TEST_INSTALL=1 integration/vm/run.sh

browser: ## answer the questions of an on-call engineer on the pages of three replicas, and sign in at a provider, in Chromium, which root gets installed; four minutes
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || if [ "$$(id -u)" = 0 ]; then \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; \
	else echo 'Chromium is missing: apt-get install chromium fonts-dejavu-core' >&2; exit 1; fi
	go -C integration/browser test -tags browser -count=1 -v -timeout 10m .

release: ## build the binaries, packages, images, SBOMs and signed sums of the tagged commit into bin/release; CRONCLAVE_RELEASE_KEY=FILE, see packaging/release.sh
	packaging/release.sh

release-check: ## build a release twice, in two folders, and compare byte for byte; then lintian, rpm and systemd-analyze judge it; root gets them installed
	CRONCLAVE_TEST_INSTALL=1 packaging/reproducible.sh

packages: ## build the packages and images of this platform once, and check them as release-check does; two minutes, root gets lintian and rpm installed
	go -C packaging test -count=1 ./...
	CRONCLAVE_TEST_INSTALL=1 ONCE=1 PLATFORMS=linux/$(shell go env GOARCH) packaging/reproducible.sh

systemd-check: ## install the deb under systemd, in a container: start without Redis, reload, watchdog, upgrade while a job runs, drain, drop-ins, removal; WHERE=vm for a machine with cgroup v2, SUITE=trixie
	rm -rf bin/check
	for n in 1 2; do VERSION=v0.0.$$n PLATFORMS=linux/$(shell go env GOARCH) CRONCLAVE_RELEASE_KEY=none packaging/release.sh bin/check/$$n || exit; done
	CRONCLAVE_TEST_INSTALL=1 packaging/systemd-check.sh bin/check/1/*.deb bin/check/2/*.deb $(WHERE)

image: ## load the images cronclave:dev (15 MB packed at most) and cronclave:dev-shell, made of the program here, without pulling any
	GOOS=linux $(MAKE) build
	rm -rf bin/image
	mkdir -p bin/image
	SOURCE_DATE_EPOCH=$(shell git log -1 --format=%ct) packaging/image.sh bin/image cronclave $(VERSION) linux/$(shell go env GOARCH)=bin/cronclave
	for kind in '' -shell; do docker load -q -i bin/image/cronclave$$kind.oci.tar && docker tag cronclave:$(VERSION)$$kind-$(shell go env GOARCH) cronclave:dev$$kind || exit; done

image-check: image ## run three replicas of the image on a network, cut one off, and count the runs; then docker compose judges deploy/compose
	packaging/image-check.sh cronclave:dev-shell cronclave:dev

chart: build ## vet and lint the Helm chart, decode it by the types of Kubernetes, and judge its pods by Pod Security; UPDATE=-update writes deploy/kubernetes
	go -C packaging/chart vet .
	CRONCLAVE_TEST_PROGRAM=$(CURDIR)/bin/cronclave go test -C packaging/chart -count=1 . $(UPDATE)

DURATION := 1h

soak: ## fifty jobs of each second on five replicas, and a fault every ten seconds, for an hour; DURATION=10m for less
	CRONCLAVE_TEST_INSTALL=1 CRONCLAVE_TEST_RACE=0 CRONCLAVE_TEST_SOAK=$(DURATION) go test -C integration -count=1 -v -timeout 0 -run '^TestSoak$$' ./soak

alerts: ## check the alert rules, and that each fires when it should (the first time builds promtool, which takes minutes; PROMTOOL=promtool takes yours)
	$(PROMTOOL) check rules deploy/prometheus/alerts.yml
	$(PROMTOOL) test rules deploy/prometheus/alerts_test.yml

clean: ## remove what make built
	rm -rf bin
