// Package architecture holds the rules of the house as tests: which package may import which others, and calls that
// no package makes. docs/architecture.md lists the packages; a rule here carries its reason, which a broken rule prints.
package architecture

import (
	"fmt"
	"slices"
	"strings"
)

const module = "github.com/cronclave/cronclave"

// room is a package with all below it that has no room of its own, and the packages of the module that it may import.
type room struct {
	path   string   // below the module
	may    []string // rooms; nil for none, everything for all
	reason string
}

// everything is for packages that wire the parts together.
var everything = []string{"*"}

// house lists every room; a package outside of them has no place yet.
var house = []room{
	{"internal/lease", []string{"internal/backoff"}, "what a lock is asked and answers does not depend on where it is kept"},
	{"internal/lease/rules", []string{"internal/lease"}, "the rules are compared with the scripts, so they must be pure"},
	{"internal/lease/quorum", []string{"internal/backoff", "internal/lease", "internal/lease/redis", "internal/lease/rules"}, "a store knows of locks and servers, not of leases that are kept"},
	{"internal/lease/redis", []string{"internal/backoff", "internal/lease"}, "a store knows of locks and servers, not of leases that are kept"},
	{"internal/lease/leasetest", []string{"internal/embedded"}, "a network that fails does not depend on what is sent over it"},
	{"locking", []string{"internal/backoff", "internal/lease", "internal/lease/quorum", "internal/lease/redis"}, "locks are a library that stands alone: its users import nothing but locks"},
	{"locking/locktest", []string{"internal/lease", "locking"}, "the conformance suite runs against any Redis that is handed in"},
	{"election", []string{"internal/backoff", "internal/lease", "locking"}, "leases alone decide which replica runs a tick"},
	{"scheduler", []string{"election", "scheduler/cronspec", "scheduler/internal/agenda", "scheduler/internal/failpoint", "scheduler/run", "internal/backoff", "internal/multierr"}, "the scheduler declares what else it needs as interfaces"},
	{"scheduler/run", []string{"election", "internal/backoff", "internal/selffence", "scheduler/internal/failpoint"}, "a run is executed in one way, whatever tick or request it is for"},
	{"scheduler/internal/failpoint", nil, "every step of a run may be the last of its replica"},
	{"scheduler/cronspec", []string{"internal/units"}, "the next tick is a pure function of expressions and zones"},
	{"scheduler/internal/agenda", []string{"scheduler/cronspec", "scheduler/run"}, "what is to be asked for next follows from what happened and from the clock that the caller reads: the agenda does no I/O"},
	{"internal/safefile", []string{"internal/proc"}, "all that opens files from outside uses it, so it knows nothing of them"},
	{"internal/zonedata", []string{"internal/safefile", "scheduler/cronspec"}, "which zones a machine has does not depend on the jobs that use them"},
	{"internal/units", nil, "users write durations and sizes in one way everywhere"},
	{"internal/config", []string{"internal/config/document", "internal/config/schema", "internal/proc", "internal/safefile", "internal/units", "internal/zonedata", "scheduler/cronspec"},
		"configuration is data; only cron expressions are checked by their own package"},
	{"internal/importer", []string{"internal/config", "internal/units", "scheduler/cronspec"}, "what other schedulers mean becomes text, which the configuration itself judges"},
	{"internal/config/document", nil, "where a value stands in a text does not depend on its meaning"},
	{"internal/config/schema", []string{"internal/config/document", "internal/units"}, "values of a kind are read in one way, whichever keys there are"},
	{"internal/process", []string{"internal/backoff", "internal/proc", "internal/safefile", "internal/starter"}, "processes know nothing of leases and schedules"},
	{"internal/httpjob", []string{"internal/dial", "internal/process", "internal/units"}, "what is sent and what came back depends on no schedule and no lease"},
	{"internal/starter", nil, "it is initialised before the rest of the binary, so it must not wait for a package of ours"},
	{"internal/hungfs", nil, "tests of every package may need a mount that hangs"},
	{"internal/warden", []string{"internal/backoff", "internal/logging", "internal/proc", "internal/selffence"}, "the helper process that kills must be small enough to be trusted"},
	{"internal/journal", []string{"internal/backoff", "internal/multierr", "scheduler/run"}, "correctness never reads the journal, so nothing below it may matter; of a run it knows its record"},
	{"internal/journal/journaltest", []string{"internal/journal", "scheduler/run"}, "the conformance suite runs against any Redis that is handed in"},
	{"internal/dial", nil, "a connection is made in one way, whatever is sent over it"},
	{"internal/sdnotify", nil, "what a service manager is sent does not depend on who sends it"},
	{"internal/backoff", nil, "everything that tries again pauses in one way"},
	{"internal/selffence", nil, "when work ends before its lease does is computed in one way, in the holder's process and beside it"},
	{"internal/multierr", nil, "errors are joined below everything that has any"},
	{"internal/web", []string{"internal/logging", "internal/web/oidc"}, "requests are let through in one way, whatever they are for"},
	{"internal/web/metrics", []string{"internal/events", "internal/journal", "scheduler/run"}, "events are counted without regard to what serves the counts"},
	{"internal/web/oidc", []string{"internal/dial"}, "which person a provider has signed in does not depend on what people may do here"},
	{"internal/web/api", []string{"internal/journal", "internal/logging", "internal/cluster", "internal/redisconn", "internal/units", "scheduler/run"}, "the API shows what the operator finds, and decides nothing"},
	{"internal/logging", []string{"internal/backoff"}, "log output must wait for nothing, so it knows of nothing that could hang"},
	{"internal/testtier", nil, "tests of every package belong to a tier in one way"},
	{"internal/resp", nil, "whether a reply is well-formed does not depend on what it says"},
	{"internal/proc", nil, "what a process is known by depends on nothing of ours"},
	{"internal/replica", []string{"election", "internal/web/api", "internal/backoff", "internal/process", "internal/config", "internal/web/dashboard", "internal/events", "internal/httpjob", "internal/web", "internal/web/metrics", "internal/journal", "internal/logging",
		"internal/web/oidc", "internal/cluster", "internal/proc", "internal/redisconn", "internal/replica/dispatch", "internal/replica/leader", "internal/safefile", "internal/sdnotify", "internal/trace", "internal/units", "internal/warden", "locking", "scheduler", "scheduler/cronspec", "scheduler/run"}, "one replica wires all parts together, and knows nothing of flags"},
	{"internal/replica/dispatch", []string{"internal/backoff", "internal/cluster", "internal/config", "internal/dial", "internal/journal", "internal/notify"}, "what is sent depends on the journal and the configuration, and not on what else a leader does"},
	{"internal/replica/leader", []string{"election", "internal/backoff", "internal/cluster", "internal/config", "internal/dial", "internal/journal", "internal/notify", "internal/redisconn", "internal/replica/dispatch", "internal/web/metrics", "locking", "scheduler/cronspec"}, "what a leader does depends on the cluster, and not on the replica that leads"},
	{"internal/notify", []string{"internal/config", "internal/dial", "internal/safefile", "scheduler/run"}, "what a target is sent does not depend on who decides when: the queue and the leader come to it with a message"},
	{"internal/events", []string{"internal/journal"}, "what happened does not depend on who hears of it"},
	{"internal/trace", []string{"internal/backoff", "internal/dial"}, "what a collector is sent depends on no run"},
	{"internal/demo", []string{"election", "internal/backoff", "internal/config", "internal/embedded", "internal/journal", "internal/proc", "internal/redisconn", "internal/units", "internal/zonedata", "locking", "scheduler/cronspec"}, "the demo starts replicas as processes, and looks at them from outside"},
	{"internal/redisconn", []string{"locking", "internal/config", "internal/dial", "internal/embedded", "internal/journal", "internal/safefile", "internal/resp"}, "a URL becomes a client, and a client a journal, in one place, which knows nothing of schedules"},
	{"internal/console", []string{"internal/journal", "internal/cluster", "internal/redisconn", "internal/units"}, "texts are made of the same values as JSON, and decide nothing"},
	{"internal/web/dashboard", []string{"internal/console", "internal/journal", "internal/cluster", "internal/units", "scheduler/cronspec"}, "pages are made of the same values as texts and JSON, and act through the operator alone"},
	{"internal/cluster", []string{"election", "internal/backoff", "internal/journal", "internal/lease", "internal/multierr", "internal/redisconn", "internal/units", "locking", "scheduler", "scheduler/cronspec", "scheduler/run"}, "a cluster is seen and steered through Redis alone, without a configuration or a replica"},
	{"internal/embedded", nil, "the embedded server takes the place of Redis, which knows nothing of us"},
	{"cmd", everything, "wiring knows every part"},
	{"integration", everything, "tests see what users see, and what the parts are made of"},
}

// guest is a module of others that only some rooms may import.
type guest struct {
	prefix  string
	rooms   []string
	inTests bool // whether the tests of every room are free to import it
	reason  string
}

var guests = []guest{
	{"github.com/redis/go-redis", []string{"internal/lease/leasetest", "internal/lease/quorum", "internal/lease/redis", "locking", "locking/locktest", "internal/journal", "internal/journal/journaltest", "internal/embedded", "internal/redisconn", "cmd"}, true,
		"Redis is spoken to in few places, or its failures are handled in none"},
	{"github.com/robfig/cron", []string{"scheduler/cronspec"}, true,
		"its parser is used behind guards against its panics, its engine never"},
	{"github.com/BurntSushi/toml", []string{"internal/config/document"}, false,
		"there is one reader of configuration, which knows the place of every value"},
	{"go.yaml.in/yaml", []string{"internal/importer"}, false,
		"jobs are written in TOML; YAML is read where they come from other schedulers"},
	{"github.com/alicebob/miniredis", []string{"internal/embedded"}, true,
		"the in-process server is for trials and must say so, which internal/embedded sees to"},
	{"github.com/danielgtaylor/huma", []string{"internal/web/api"}, false,
		"the routes and their description are made of one text, in one place"},
	{"github.com/coreos/go-oidc", []string{"internal/web/oidc"}, false,
		"answers of a provider are verified in one place"},
	{"golang.org/x/oauth2", []string{"internal/web/oidc"}, false,
		"secrets go to a provider from one place"},
	{"github.com/wneessen/go-mail", []string{"internal/notify"}, false,
		"mail is sent from one place, which checks what the client makes of an answer"},
	{"github.com/cloudevents", nil, false,
		"webhooks are held to the official library in integration alone: it has a logger and a JSON parser of its own"},
	{"github.com/standard-webhooks", nil, false,
		"signatures are held to the official library in integration alone"},
	{"github.com/testcontainers", nil, false,
		"only the integration tests need a container engine"},
	{"github.com/anishathalye/porcupine", nil, false,
		"histories are recorded where a real Redis is; importers of a suite of ours must not get a checker with it"},
}

// pkg is the input of the rules: a package's imports, as go list has them.
type pkg struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	TestGoFiles  []string
	XTestGoFiles []string
}

// importFaults applies house and guests to the packages; each fault says the rule's reason.
func importFaults(packages []pkg) []string {
	var faults []string
	for _, p := range packages {
		here, ok := roomOf(p.ImportPath)
		if !ok {
			faults = append(faults, fmt.Sprintf("%s has no place in the house: give it one in docs/architecture.md and here", p.ImportPath))
			continue
		}
		faults = append(faults, houseFaults(p, here)...)
		faults = append(faults, guestFaults(p, here)...)
	}
	return faults
}

// roomOf finds the room of a package of ours, the innermost one.
func roomOf(importPath string) (room, bool) {
	var found room
	for _, r := range house {
		if within(importPath, module+"/"+r.path) && len(r.path) > len(found.path) {
			found = r
		}
	}
	return found, found.path != ""
}

// within returns whether a path is the prefix or lies below it; a major version's suffix does not matter.
func within(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func houseFaults(p pkg, here room) []string {
	var faults []string
	for _, imported := range p.Imports {
		if !within(imported, module) {
			continue
		}
		there, ok := roomOf(imported)
		if there.path == "integration" && here.path != "integration" {
			faults = append(faults, fmt.Sprintf("%s imports %s: %s", p.ImportPath, imported, "what is there is for tests, some of it broken on purpose"))
			continue
		}
		if ok && (there.path == here.path || slices.Contains(here.may, there.path) || slices.Equal(here.may, everything)) {
			continue
		}
		faults = append(faults, fmt.Sprintf("%s imports %s: %s", p.ImportPath, imported, here.reason))
	}
	return faults
}

func guestFaults(p pkg, here room) []string {
	var faults []string
	for _, g := range guests {
		if here.path == "integration" || slices.Contains(g.rooms, here.path) {
			continue
		}
		imports := p.Imports
		if !g.inTests {
			imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		}
		for _, imported := range imports {
			if within(imported, g.prefix) {
				faults = append(faults, fmt.Sprintf("%s imports %s: %s", p.ImportPath, imported, g.reason))
			}
		}
	}
	return faults
}
