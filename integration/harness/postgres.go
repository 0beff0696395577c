package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// postgresTools finds the folder of PostgreSQL's programs once for the whole test binary, and installs them where that is allowed.
var postgresTools = sync.OnceValues(func() (string, error) {
	dir, err := findPostgres()
	if err != nil && os.Getenv("CRONCLAVE_TEST_INSTALL") == "1" {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		if err = Install(ctx, "postgresql"); err == nil {
			dir, err = findPostgres()
		}
	}
	if err != nil {
		return "", fmt.Errorf("no PostgreSQL for the examples of docs/fencing.md; install it (apt-get install postgresql; brew install "+
			"postgresql), or as root on Debian or Ubuntu run make test, which does: %w", err)
	}
	return dir, nil
})

// findPostgres looks where PATH leads, and where Debian hides the server.
func findPostgres() (dir string, err error) {
	path, err := exec.LookPath("postgres")
	if err != nil {
		hidden, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is well-formed
		if len(hidden) == 0 {
			return "", err
		}
		path = hidden[len(hidden)-1]
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	return filepath.Dir(path), nil
}

// Postgres is a server for one test, without a port: it is met at a socket in its folder.
type Postgres struct {
	*testing.T
	Tools, dir string
	as         *syscall.SysProcAttr // it refuses to be root
}

// StartPostgres starts a server, and removes it after the test.
func StartPostgres(t *testing.T) *Postgres {
	t.Helper()
	tools, err := postgresTools()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cronclave-postgres-") // another user can't get into the test's own, nor is its path short enough
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &Postgres{T: t, Tools: tools, dir: dir, as: &syscall.SysProcAttr{}}
	if os.Geteuid() == 0 {
		p.beSomebodyElse()
	}
	data := filepath.Join(dir, "data")
	init := p.command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := p.command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=20")
	said := &LineLog{}
	server.Stdout, server.Stderr = said, said
	DieWithUs(server)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // at once
		_ = server.Wait()
		if t.Failed() {
			t.Logf("PostgreSQL said:\n%s", strings.Join(said.Lines(), "\n"))
		}
	})
	Eventually(t, Soon, "answer of PostgreSQL", func() bool { _, err := p.query("SELECT 1"); return err == nil })
	return p
}

// beSomebodyElse has the server run as the user of Debian's package, else as the unprivileged default user.
func (p *Postgres) beSomebodyElse() {
	p.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		p.Fatal(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32) // numbers on Unix
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	p.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := os.Chown(p.dir, int(uid), int(gid)); err != nil {
		p.Fatal(err)
	}
}

// command is one of PostgreSQL's programs, as the user of the server.
func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.Tools, name), args...)
	as := *p.as
	cmd.SysProcAttr, cmd.Dir = &as, p.dir
	return cmd
}

// Env has psql meet the server.
func (p *Postgres) Env() []string {
	return []string{"PGHOST=" + p.dir, "PGUSER=postgres", "PGDATABASE=postgres", "PGCONNECT_TIMEOUT=60"}
}

// Psql is a session.
func (p *Postgres) Psql(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.Context(), filepath.Join(p.Tools, "psql"), append([]string{"-qtAX", "-v", "ON_ERROR_STOP=1"}, args...)...)
	cmd.Env = slices.Concat(os.Environ(), p.Env())
	return cmd
}

func (p *Postgres) query(sql string) (string, error) {
	out, err := p.Psql("-c", sql).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Must returns the result of a query, which must not fail.
func (p *Postgres) Must(sql string) string {
	p.Helper()
	got, err := p.query(sql)
	if err != nil {
		p.Fatalf("%s: %v\n%s", sql, err, got)
	}
	return got
}
