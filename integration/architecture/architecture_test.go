package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository, seen from this package.
const root = "../.."

func TestHouseKeepsItsRules(t *testing.T) {
	t.Parallel()
	for _, goos := range []string{"linux", "darwin"} { // the platforms for production and development
		packages := list(t, goos)
		if len(packages) == 0 {
			t.Fatal("go list finds no packages")
		}
		for _, fault := range importFaults(packages) {
			t.Errorf("%s: %s", goos, fault)
		}
		for _, p := range packages {
			faults, err := sourceFaults(p)
			if err != nil {
				t.Error(err)
			}
			for _, fault := range faults {
				t.Errorf("%s: %s", goos, fault)
			}
		}
	}
}

func TestLuaIsInLockingAlone(t *testing.T) {
	t.Parallel()
	var paths []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (path == ".git" || path == "bin") {
			return fs.SkipDir
		}
		paths = append(paths, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range luaFaults(paths) {
		t.Error(fault)
	}
}

// list asks go list for the packages of the program's module and of this one. With -e a package that does not compile is listed all the same: its
// own build complains about that.
func list(t *testing.T, goos string) []pkg {
	t.Helper()
	return append(listModule(t, root, goos), listModule(t, root+"/integration", goos)...)
}

func listModule(t *testing.T, dir, goos string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,Imports,TestGoFiles,TestImports,XTestGoFiles,XTestImports", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0", "GOFLAGS=") // the race detector, which flags may ask for, needs cgo
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var packages []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// imports makes a package as go list would describe it.
func imports(path string, imported ...string) pkg {
	return pkg{ImportPath: module + "/" + path, Imports: imported}
}

func TestImportRulesAreEnforced(t *testing.T) {
	t.Parallel()
	const (
		ours     = module + "/"
		goredis  = "github.com/redis/go-redis/v9"
		robfig   = "github.com/robfig/cron/v3"
		toml     = "github.com/BurntSushi/toml"
		docker   = "github.com/testcontainers/testcontainers-go"
		miniredi = "github.com/alicebob/miniredis/v2/server"
	)
	for _, tc := range []struct {
		name  string
		pkg   pkg
		fault string // contained in the one fault; "" for none
	}{
		{"locking of ours", imports("locking", ours+"election"), "stands alone"},
		{"locking of a store", imports("locking", ours+"internal/lease/redis", ours+"internal/lease/quorum"), ""},
		{"leases of a store", imports("internal/lease", ours+"internal/lease/redis"), "where it is kept"},
		{"leases of Redis", imports("internal/lease", goredis), "few places"},
		{"a store of another", imports("internal/lease/redis", ours+"internal/lease/quorum"), "locks and servers"},
		{"a store of locking", imports("internal/lease/quorum", ours+"locking"), "locks and servers"},
		{"leases of locking", imports("internal/lease", ours+"locking"), "where it is kept"},
		{"locking of its test suite", imports("locking", ours+"locking/locktest"), "stands alone"},
		{"locktest of locking", imports("locking/locktest", ours+"locking", goredis), ""},
		{"election of locking", imports("election", ours+"locking"), ""},
		{"election of scheduler", imports("election", ours+"scheduler"), "leases alone"},
		{"election of Redis", imports("election", goredis), "few places"},
		{"scheduler of election and cronspec", imports("scheduler", ours+"election", ours+"scheduler/cronspec"), ""},
		{"scheduler of locking", imports("scheduler", ours+"locking"), "as interfaces"},
		{"scheduler of the journal", imports("scheduler", ours+"internal/journal"), "as interfaces"},
		{"scheduler of robfig", imports("scheduler", robfig), "its engine never"},
		{"scheduler's test of robfig", pkg{ImportPath: ours + "scheduler", TestImports: []string{robfig}}, ""},
		{"cronspec of scheduler", imports("scheduler/cronspec", ours+"scheduler"), "pure function"},
		{"cronspec of robfig", imports("scheduler/cronspec", robfig), ""},
		{"config of cronspec and its rooms", imports("internal/config", ours+"scheduler/cronspec", ours+"internal/config/document", ours+"internal/config/schema"), ""},
		{"document of toml", imports("internal/config/document", toml), ""},
		{"document of config", imports("internal/config/document", ours+"internal/config"), "does not depend on its meaning"},
		{"config of scheduler", imports("internal/config", ours+"scheduler"), "configuration is data"},
		{"config of Redis", imports("internal/config", goredis), "few places"},
		{"process of ours", imports("internal/process", ours+"locking"), "know nothing of leases"},
		{"warden of ours", imports("internal/warden", ours+"internal/process"), "small enough"},
		{"journal of ours", imports("internal/journal", ours+"locking", goredis), "never reads the journal"},
		{"journaltest of the journal", imports("internal/journal/journaltest", ours+"internal/journal", goredis), ""},
		{"web of ours", imports("internal/web", ours+"scheduler"), "let through in one way"},
		{"embedded of ours", imports("internal/embedded", ours+"internal/config", goredis, miniredi), "takes the place of Redis"},
		{"cmd of all", imports("cmd/cronclave", ours+"scheduler", ours+"internal/embedded", goredis), ""},
		{"cmd of a broken lock", imports("cmd/cronclave", ours+"integration/classics"), "for tests"},
		{"cmd of toml", imports("cmd/cronclave", toml), "one reader"},
		{"cmd of miniredis", imports("cmd/cronclave", miniredi), "for trials"},
		{"a test of testcontainers", pkg{ImportPath: ours + "locking", XTestImports: []string{docker}}, "container engine"},
		{"a suite of the checker", imports("locking/locktest", "github.com/anishathalye/porcupine"), "histories"},
		{"integration of all", pkg{ImportPath: ours + "integration", TestImports: []string{docker, goredis, ours + "locking"}}, ""},
		{"a package of no room", imports("internal/utils"), "no place in the house"},
		{"a name that only begins alike", imports("lockingextra"), "no place in the house"},
		{"the top level", pkg{ImportPath: module}, "no place in the house"},
	} {
		faults := importFaults([]pkg{tc.pkg})
		if tc.fault == "" && len(faults) == 0 {
			continue
		}
		if tc.fault == "" || len(faults) != 1 || !strings.Contains(faults[0], tc.fault) {
			t.Errorf("%s: faults %q, want %q in it", tc.name, faults, tc.fault)
		}
	}
}

func TestSourceRulesAreEnforced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, path, file, source string
		fault                    string
	}{
		{"exit in main.go of a command", "cmd/cronclave", "main.go", `import "os"; func f() { os.Exit(1) }`, ""},
		{"exit elsewhere in a command", "cmd/cronclave", "run.go", `import "os"; func f() { os.Exit(1) }`, "p/run.go:1: os.Exit"},
		{"exit in a library's main.go", "locking", "main.go", `import "os"; func f() { os.Exit(1) }`, "os.Exit"},
		{"exit by log", "election", "a.go", `import "log"; func f() { log.Fatalf("x") }`, "log.Fatalf"},
		{"panic", "cmd/cronclave", "main.go", `func f() { panic("x") }`, "no panic reaches a user"},
		{"panic in a comment", "locking", "a.go", `// panic("x")`, ""},
		{"a script in a store", "internal/lease/redis", "a.go", `import "github.com/redis/go-redis/v9"; var s = redis.NewScript("x")`, ""},
		{"a script in locking", "locking", "a.go", `import "github.com/redis/go-redis/v9"; var s = redis.NewScript("x")`, "Lua is in internal/lease/redis"},
		{"a script elsewhere", "internal/journal", "a.go", `import "github.com/redis/go-redis/v9"; var s = redis.NewScript("x")`, "Lua is in internal/lease/redis"},
		{"a script of a classic", "integration/classics", "a.go", `import "github.com/redis/go-redis/v9"; var s = redis.NewScript("x")`, ""},
		{"a script of a client's field", "internal/journal", "a.go", `import _ "github.com/redis/go-redis/v9"; func f(j j) { j.redis.EvalSha() }`, "Lua is in internal/lease/redis"},
		{"an Eval that is not of Redis", "scheduler", "a.go", `func f(x x) { x.Eval() }`, ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, tc.file), []byte("package p; "+tc.source+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := pkg{ImportPath: module + "/" + tc.path, Dir: dir, GoFiles: []string{tc.file}}
		faults, err := sourceFaults(p)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(tc.fault, "p/", module+"/"+tc.path+"/", 1)
		if (want == "") != (len(faults) == 0) || want != "" && !strings.Contains(faults[0], want) {
			t.Errorf("%s: faults %q, want %q in it", tc.name, faults, want)
		}
	}
}

func TestLuaRuleIsEnforced(t *testing.T) {
	t.Parallel()
	got := luaFaults([]string{"internal/lease/redis/lua/acquire.lua", "internal/journal/record.lua", "docs/protocol.md"})
	if len(got) != 1 || !strings.HasPrefix(got[0], "internal/journal/record.lua") {
		t.Errorf("faults: %q", got)
	}
}

func TestRoomsAreNamedOnce(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, r := range house {
		if slices.Contains(paths, r.path) {
			t.Errorf("%s has two rooms", r.path)
		}
		if r.reason == "" {
			t.Errorf("%s has no reason", r.path)
		}
		paths = append(paths, r.path)
	}
}

func TestArchitecturePageListsEachRoom(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range house {
		if !strings.Contains(string(page), "\n- `"+r.path) {
			t.Errorf("docs/architecture.md does not list %s", r.path)
		}
	}
}
