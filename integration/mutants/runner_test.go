// Package mutants proves that the tests of cronclave's promises can fail. Each *.patch here breaks one promise on
// purpose, names it, and names the test that must notice:
//
//	Deadline of the holder counted from the reply instead of from before the request.
//	Promise: P3
//	Test: go test ./locking -run TestDeadline
//	--- a/locking/lease.go
//	+++ b/locking/lease.go
//	...
//
// `make mutants` applies each patch to a copy of the repository and runs its test. A mutant is caught when that test
// fails; it is an error when the patch does not apply, when the mutant does not build, or when the test fails without
// the mutant as well. The text before the two headers describes the fault for the reader.
package mutants

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// mutant is one patch with its headers.
type mutant struct {
	name     string   // the file's name without .patch
	sentence string   // the fault, in words
	promise  string   // as docs/guarantees.md names it: "P1", or several: "P1, quorum"
	test     []string // arguments of go: "test", "./election", ...
	patch    []byte   // the whole file; git skips the text before the diff
}

var promises = regexp.MustCompile(`^(P[1-9]|[a-z]+)(, (P[1-9]|[a-z]+))*$`)

// parseMutant reads a patch file.
func parseMutant(path string) (mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return mutant{}, err
	}
	m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch"), patch: text}
	var command string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "diff ") {
			break
		}
		if v, ok := strings.CutPrefix(line, "Promise:"); ok {
			m.promise = strings.TrimSpace(v)
		} else if v, ok := strings.CutPrefix(line, "Test:"); ok {
			command = strings.TrimSpace(v)
		} else {
			m.sentence = strings.TrimSpace(m.sentence + " " + strings.TrimSpace(line))
		}
	}
	if !promises.MatchString(m.promise) {
		return mutant{}, fmt.Errorf("%s: the header Promise is %q, want P1 or P1, P3", path, m.promise)
	}
	words := strings.Fields(command)
	if len(words) < 3 || words[0] != "go" || words[1] != "test" || strings.ContainsAny(command, `'"`) {
		return mutant{}, fmt.Errorf("%s: the header Test is %q, want go test ./package -run Test, without quotes", path, command)
	}
	m.test = words[1:]
	return m, nil
}

// verdict is the result of a mutant.
type verdict string

const (
	caught   verdict = "caught"
	survived verdict = "SURVIVED"
	broken   verdict = "ERROR"
)

// result is a mutant's row in the table.
type result struct {
	mutant  mutant
	verdict verdict
	by      string // the test that failed
	why     error  // where it is not caught
	took    time.Duration
}

// runner runs mutants of one repository, one after the other, always at the same path: packages that a mutant does
// not touch then come from the build cache.
type runner struct {
	source  string           // the repository
	tree    string           // its copy, made afresh for each run
	healthy map[string]error // test command -> nil if it passes without a mutant
}

func newRunner(source, scratch string) *runner {
	return &runner{source: source, tree: filepath.Join(scratch, "repository"), healthy: map[string]error{}}
}

// run returns whether the mutant's test catches it.
func (r *runner) run(ctx context.Context, m mutant) result {
	if err := r.checkHealthy(ctx, m.test); err != nil {
		return result{mutant: m, verdict: broken, why: err}
	}
	if err := errors.Join(r.restore(), r.apply(ctx, m)); err != nil {
		return result{mutant: m, verdict: broken, why: err}
	}
	start := time.Now()
	out, err := r.goTest(ctx, m.test)
	res := result{mutant: m, took: time.Since(start)}
	switch {
	case err != nil:
		res.verdict, res.why = broken, err
	case out.unbuilt:
		res.verdict, res.why = broken, fmt.Errorf("the mutant does not build:\n%s", out.text)
	case out.failed:
		res.verdict, res.by = caught, out.culprit
	default:
		res.verdict, res.why = survived, fmt.Errorf("%s passes", command(m.test))
	}
	return res
}

// checkHealthy runs the test without a mutant, once for each command: a test that fails anyway catches nothing.
func (r *runner) checkHealthy(ctx context.Context, test []string) error {
	key := command(test)
	if err, known := r.healthy[key]; known {
		return err
	}
	err := r.restore()
	if err == nil {
		var out outcome
		out, err = r.goTest(ctx, test)
		switch {
		case err != nil:
		case out.unbuilt || out.failed:
			err = fmt.Errorf("%s fails without the mutant too:\n%s", key, out.text)
		case !out.ran:
			err = fmt.Errorf("%s runs no test", key)
		}
	}
	r.healthy[key] = err
	return err
}

func command(test []string) string { return "go " + strings.Join(test, " ") }

// restore makes the copy anew, without the repository's history and its built programs.
func (r *runner) restore() error {
	if err := os.RemoveAll(r.tree); err != nil {
		return err
	}
	return filepath.WalkDir(r.source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(r.source, path)
		if err != nil {
			return err
		}
		to := filepath.Join(r.tree, inside)
		switch {
		case inside == ".git" || inside == "bin":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil // .git is a file in a work tree
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case d.Type().IsRegular():
			return copyFile(path, to)
		default:
			return nil // sockets and the like are no part of a repository
		}
	})
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

func (r *runner) apply(ctx context.Context, m mutant) error {
	cmd := exec.CommandContext(ctx, "git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir, cmd.Stdin = r.tree, bytes.NewReader(m.patch)
	// In a subdirectory of some other repository git would skip the files without a word.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(r.tree))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the patch does not apply: %w\n%s", err, out)
	}
	return nil
}

// outcome is the result of one go test.
type outcome struct {
	ran     bool   // at least one test was started
	failed  bool   // and the package failed
	unbuilt bool   // a package could not be built or vetted
	culprit string // the first test that failed
	text    string // the end of the output
}

// goTest runs the command in the copy. Its error says that the outcome could not be found out.
func (r *runner) goTest(ctx context.Context, test []string) (outcome, error) {
	cmd := exec.CommandContext(ctx, "go", append(slices.Clone(test), "-json")...)
	cmd.Dir = r.tree
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	events, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return outcome{}, fmt.Errorf("%s: %w", cmd, err)
	}
	out, parseErr := readEvents(bytes.NewReader(events))
	if parseErr != nil {
		return outcome{}, fmt.Errorf("%s: %w\n%s", cmd, parseErr, stderr.String())
	}
	if err != nil && !out.failed && !out.unbuilt {
		return outcome{}, fmt.Errorf("%s: %w, but no test failed\n%s%s", cmd, err, out.text, stderr.String())
	}
	return out, nil
}

// event is one line of go test -json, see `go doc test2json` and `go help buildjson`.
type event struct {
	Action, Package, Test, Output, FailedBuild string
}

// readEvents sums up the output of go test -json. A panic or a time-out ends a package without a word on the test
// that ran; then that test is the culprit.
func readEvents(events io.Reader) (outcome, error) {
	var (
		out     outcome
		running []string
		text    []string
	)
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return outcome{}, fmt.Errorf("read %q: %w", lines.Text(), err)
		}
		switch {
		case e.Output != "":
			text = append(text, e.Output)
		case e.Action == "build-fail" || e.FailedBuild != "":
			out.unbuilt = true
		case e.Action == "run":
			out.ran = true
			running = append(running, e.Test)
		case e.Action == "fail" && e.Test == "":
			out.failed = out.ran
		case e.Action == "fail" && out.culprit == "":
			out.culprit = e.Test
		}
		if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" {
			running = slices.DeleteFunc(running, func(name string) bool { return name == e.Test })
		}
	}
	if out.failed && out.culprit == "" {
		out.culprit = "the package's end"
		if len(running) > 0 {
			out.culprit = running[0]
		}
	}
	out.text = strings.Join(text[max(0, len(text)-40):], "")
	return out, lines.Err()
}

// printTable writes one row for each mutant.
func printTable(w io.Writer, results []result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MUTANT\tPROMISE\tCAUGHT BY\tTIME")
	for _, r := range results {
		by := r.by
		if r.verdict != caught {
			by = string(r.verdict)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.mutant.name, r.mutant.promise, by, r.took.Round(10*time.Millisecond))
	}
	return table.Flush()
}
