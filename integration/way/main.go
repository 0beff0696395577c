// Way counts the functions, files and packages that one act of a replica runs through: a tick, a renewal, a trigger request over HTTP, a status over HTTP.
//
// It builds cronclave with coverage counters, and runs one replica on a Redis of its own: once idle, and for each act once with twenty acts in the same time.
// A function is on the way if its counter is greater by at least 0.45 an act. With -list it prints them.
package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
)

const (
	module = "github.com/cronclave/cronclave"
	acts   = 20
	// share is the least number of calls an act of a function on the way. Half of the acts may share a batch.
	share = 0.45
	// rare is a schedule without a tick in the time of a measurement.
	rare = "schedule = \"@every 12h\"\n"
	// bearer is the token of the replica's server, which exists for this measurement alone.
	bearer = "a-token-of-the-measurement"
)

// An act is what a replica is measured with.
type act struct {
	name string
	job  string // its keys in the configuration
	// do performs act number i, from 0. Without it, acts happen by themselves, one a second.
	do func(ctx context.Context, server string, i int) error
}

func main() {
	list := flag.String("list", "", "an act whose functions are printed")
	redis := flag.String("redis-server", "redis-server", "the server to start")
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *redis, *list, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "way:", err)
		os.Exit(1)
	}
}

// run prints a table with a row for each act.
func run(ctx context.Context, root, redis, list string, out io.Writer) error {
	folder, err := os.MkdirTemp("", "way")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	m := measurement{folder: folder, redis: redis, root: root, binary: filepath.Join(folder, "cronclave")}
	build := exec.CommandContext(ctx, "go", "build", "-race=false", "-cover", "-covermode=count", "-coverpkg="+module+"/...", "-o", m.binary, "./cmd/cronclave")
	build.Dir, build.Stderr = root, os.Stderr
	build.Env = append(os.Environ(), "GOFLAGS=")
	if err := build.Run(); err != nil {
		return fmt.Errorf("build with counters: %w", err)
	}
	idle, err := m.counters(ctx, act{name: "idle", job: rare + "command = [\"/bin/true\"]"})
	if err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	fmt.Fprintf(out, "%-8s  %9s  %5s  %8s\n", "act", "functions", "files", "packages")
	for _, a := range allActs() {
		busy, err := m.counters(ctx, a)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		functions := onTheWay(busy, idle)
		files, packages := map[string]bool{}, map[string]bool{}
		for _, f := range functions {
			files[f.file], packages[path.Dir(f.file)] = true, true
		}
		fmt.Fprintf(out, "%-8s  %9d  %5d  %8d\n", a.name, len(functions), len(files), len(packages))
		if a.name == list {
			for _, f := range functions {
				fmt.Fprintf(out, "  %6.2f  %s %s\n", float64(busy[f]-idle[f])/acts, f.file, f.name)
			}
		}
	}
	return nil
}

func allActs() []act {
	trigger := func(ctx context.Context, server string, _ int) error {
		return request(ctx, http.MethodPost, server+"/api/v1/jobs/measured/trigger", "{}")
	}
	return []act{
		{name: "tick", job: "schedule = \"@every 1s\"\ncommand = [\"/bin/true\"]"},
		{name: "renewal", job: rare + "lease = \"3s\"\ncommand = [\"/bin/sleep\", \"3600\"]", do: func(ctx context.Context, server string, i int) error {
			if i > 0 {
				return nil // the run of the first request is renewed once a second
			}
			return trigger(ctx, server, i)
		}},
		{name: "trigger", job: rare + "command = [\"/bin/true\"]", do: trigger},
		{name: "status", job: rare + "command = [\"/bin/true\"]", do: func(ctx context.Context, server string, _ int) error {
			return request(ctx, http.MethodGet, server+"/api/v1/status", "")
		}},
	}
}

// request sends a request, and demands that it succeeds.
func request(ctx context.Context, method, url, body string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(w.Body, 1<<20))
	if err == nil && w.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, url, w.Status, answer)
	}
	return err
}

// A measurement runs replicas in a folder.
type measurement struct{ folder, redis, root, binary string }

// A function is declared in a file, which is named below the module.
type function struct{ file, name string }

// counters runs one replica, and returns the number of calls of each function.
func (m measurement) counters(ctx context.Context, a act) (map[function]int, error) {
	folder, err := os.MkdirTemp(m.folder, a.name)
	if err != nil {
		return nil, err
	}
	redisPort, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	webPort, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	redis := exec.CommandContext(ctx, m.redis, "--port", strconv.Itoa(redisPort), "--save", "", "--dir", folder)
	if err := redis.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", m.redis, err)
	}
	defer func() { redis.Process.Kill(); redis.Wait() }()
	server := "http://127.0.0.1:" + strconv.Itoa(webPort)
	config, covered, secret := filepath.Join(folder, "jobs.toml"), filepath.Join(folder, "covered"), filepath.Join(folder, "token")
	text := fmt.Sprintf("[redis]\nurl = \"redis://127.0.0.1:%d/0\"\n[server]\nlisten = \"127.0.0.1:%d\"\ntoken_file = %q\n[jobs.measured]\n%s\n", redisPort, webPort, secret, a.job)
	if err := errors.Join(os.WriteFile(config, []byte(text), 0o600), os.WriteFile(secret, fmt.Appendf(nil, "way:operator:%x\n", sha256.Sum256([]byte(bearer))), 0o600), os.Mkdir(covered, 0o700)); err != nil {
		return nil, err
	}
	replica := exec.CommandContext(ctx, m.binary, "run", config, "--replica", "way")
	replica.Env = append(os.Environ(), "GOCOVERDIR="+covered)
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	replica.Stdout, replica.Stderr = log, log
	if err := replica.Start(); err != nil {
		return nil, err
	}
	err = m.act(ctx, a, server)
	replica.Process.Signal(syscall.SIGTERM)
	if end := replica.Wait(); err == nil && end != nil {
		err = fmt.Errorf("replica: %w", end)
	}
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return m.read(ctx, covered)
}

// act lets twenty acts happen, one a second.
func (m measurement) act(ctx context.Context, a act, server string) error {
	if err := await(ctx, server+"/readyz"); err != nil {
		return err
	}
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for i := range acts {
		select {
		case <-each.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if a.do != nil {
			if err := a.do(ctx, server, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// await polls a URL until it answers 2xx, for half a minute.
func await(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := request(ctx, http.MethodGet, url, "")
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// read returns the calls of each function: the count of the block in which its body begins.
func (m measurement) read(ctx context.Context, covered string) (map[function]int, error) {
	profile := covered + ".txt"
	convert := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i="+covered, "-o="+profile)
	if out, err := convert.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go tool covdata: %w: %s", err, out)
	}
	f, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	calls, begins := map[function]int{}, map[string]map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() { // MODULE/FILE:LINE.COLUMN,LINE.COLUMN STATEMENTS COUNT
		file, rest, found := strings.Cut(strings.TrimPrefix(lines.Text(), module+"/"), ":")
		fields := strings.Fields(rest)
		if !found || len(fields) != 3 {
			continue // the line of the mode
		}
		if begins[file] == nil {
			if begins[file], err = functionsOf(filepath.Join(m.root, file)); err != nil {
				return nil, err
			}
		}
		begin, _, _ := strings.Cut(fields[0], ",")
		name, isFirst := begins[file][begin]
		count, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", profile, lines.Text(), err)
		}
		if isFirst {
			calls[function{file, name}] += count
		}
	}
	return calls, lines.Err()
}

// functionsOf returns the declared functions of a file by the place where their first block of statements begins: at the brace of the body.
func functionsOf(file string) (map[string]string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	begins := map[string]string{}
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			name := f.Name.Name
			if f.Recv != nil {
				name = receiver(f.Recv.List[0].Type) + "." + name
			}
			at := set.Position(f.Body.Lbrace)
			for _, column := range []int{at.Column, at.Column + 1} {
				begins[fmt.Sprintf("%d.%d", at.Line, column)] = name
			}
			if len(f.Body.List) > 0 { // newer compilers begin the block at the first statement
				at = set.Position(f.Body.List[0].Pos())
				begins[fmt.Sprintf("%d.%d", at.Line, at.Column)] = name
			}
		}
	}
	return begins, nil
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// onTheWay returns the functions that an act calls, in the order of their files.
func onTheWay(busy, idle map[function]int) (found []function) {
	for f, n := range busy {
		if float64(n-idle[f]) >= share*acts {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b function) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.name, b.name)) })
	return found
}
