package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	// CronclaveProgram is the program of the replicas.
	CronclaveProgram = "github.com/cronclave/cronclave/cmd/cronclave"
	// armedProgram is the same with failpoints: see scheduler/internal/failpoint.
	armedProgram = CronclaveProgram + "#failpoints"
	// standinProgram stands in for it in the harness's own tests.
	standinProgram = "github.com/cronclave/cronclave/integration/harness/testdata/standin"
)

// builtSetting names a folder of programs that were built before (make does that), so that no package builds its own beside
// another's tests.
const builtSetting = "CRONCLAVE_TEST_PROGRAMS"

// builds holds the programs that the tests run, each built once for the whole test binary.
var builds = struct {
	sync.Mutex
	dir   string            // "" until the first build
	paths map[string]string // package -> executable
}{paths: map[string]string{}}

// Program returns the executable of a main package, built at the first request. A # in pkg separates the package from
// a build tag.
func Program(t *testing.T, pkg string) string {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	if path, ok := builds.paths[pkg]; ok {
		return path
	}
	path, err := build(pkg)
	if err != nil {
		t.Fatal(err)
	}
	builds.paths[pkg] = path
	return path
}

// build takes the program that make built before, or compiles it with the race detector, which the replica's log then speaks of,
// unless CRONCLAVE_TEST_RACE=0 or no C compiler is there to link it with.
func build(pkg string) (string, error) {
	pkg, tag, _ := strings.Cut(pkg, "#")
	name := path.Base(pkg) + tag
	if built, err := builtProgram(name); built != "" || err != nil {
		return built, err
	}
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "cronclave-bin-")
		if err != nil {
			return "", fmt.Errorf("make a directory for the programs: %w", err)
		}
		builds.dir = dir
	}
	executable := filepath.Join(builds.dir, name)
	cmd := exec.Command("go", "build", fmt.Sprintf("-race=%t", raceWanted()), "-tags", tag, "-o", executable, pkg)
	if pkg == CronclaveProgram {
		cmd.Dir = Root // in its own module: with the versions that users get
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return executable, nil
}

// builtProgram returns the path of a program in the folder of builtSetting, or "" if it is not there. A program outside of the repository is an error, because
// it may be built from another tree.
func builtProgram(name string) (string, error) {
	dir := os.Getenv(builtSetting)
	program, err := realPath(filepath.Join(dir, name))
	if dir == "" || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	tree, treeErr := realPath(Root)
	if err := errors.Join(err, treeErr); err != nil {
		return "", fmt.Errorf("%s: %w", builtSetting, err)
	}
	if below, err := filepath.Rel(tree, program); err != nil || !filepath.IsLocal(below) {
		return "", fmt.Errorf("%s: %s is outside of the tree under test, %s: unset it, or name a folder of this tree", builtSetting, program, tree)
	}
	return program, nil
}

// realPath returns an absolute path without links.
func realPath(name string) (string, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(name)
}

func raceWanted() bool {
	if os.Getenv("CRONCLAVE_TEST_RACE") == "0" {
		return false
	}
	cgo, err := exec.Command("go", "env", "CGO_ENABLED").Output()
	return err == nil && string(cgo) == "1\n"
}

func removeBuilds() error {
	if builds.dir == "" {
		return nil
	}
	return os.RemoveAll(builds.dir)
}
