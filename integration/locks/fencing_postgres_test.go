package locks

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// startReports starts a PostgreSQL with the tables of docs/fencing.md.
func startReports(t *testing.T) *harness.Postgres {
	t.Helper()
	p := harness.StartPostgres(t)
	for _, name := range []string{"report.sql", "fence.sql"} {
		if out, err := p.Psql("-f", example(t, name)).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	return p
}

// PostgreSQL refuses a holder that stood still.
// Promise: P4
func TestStillHolderAndPostgreSQL(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, tc := range []struct {
		script string
		code   int // psql's own is 3
		says   string
	}{
		{"publish-row.sh", 77, "is stale, or there is no report daily"},
		{"publish-rows.sh", 3, "of reports is stale"},
	} {
		t.Run(tc.script, func(t *testing.T) {
			t.Parallel()
			p := startReports(t)
			s := newStill(t, p.Env(), "sh", example(t, tc.script), "daily")
			code, said := s.run()
			got := p.Must("SELECT body FROM report WHERE name = 'daily'")
			if code != tc.code || got != "by two" || !strings.Contains(said, tc.says) {
				t.Errorf("exit code %d, the report is %q\n%s", code, got, said)
			}
		})
	}
}

// publish runs an example's script with a token.
func publish(p *harness.Postgres, script, token, body string) *exec.Cmd {
	cmd := exec.CommandContext(p.Context(), "sh", example(p.T, script), "daily")
	cmd.Env = slices.Concat(harness.CleanEnv(), p.Env(), []string{"CRONCLAVE_FENCING_TOKEN=" + token, "PATH=" + p.Tools + ":" + os.Getenv("PATH")})
	cmd.Stdin = strings.NewReader(body)
	return cmd
}

// PostgreSQL compares a token with the row as it is after the wait for it. A stale holder waits for the row that a
// newer one is about to write.
// Promise: P4
func TestPostgreSQLComparesAfterTheWait(t *testing.T) {
	t.Parallel()
	p := startReports(t)
	const (
		row  = "UPDATE report SET body = 'newer', fence = 9 WHERE name = 'daily' AND fence <= 9;"
		rows = "SELECT pass_fence('reports', 9); UPDATE report SET body = 'newer' WHERE name = 'daily';"
	)
	for _, tc := range []struct{ script, newer, isolation, says string }{
		{"publish-row.sh", row, "read committed", "is stale"},
		{"publish-rows.sh", rows, "read committed", "is stale"},
		{"publish-row.sh", row, "repeatable read", "could not serialize access"},
		{"publish-rows.sh", rows, "repeatable read", "could not serialize access"},
	} {
		p.Must("DELETE FROM fence; UPDATE report SET body = '', fence = 0")
		newer := p.Psql()
		in, err := newer.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := newer.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, "BEGIN; "+tc.newer+"\n"); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, harness.Soon, "newer holder", func() bool {
			return p.Must("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'") == "1"
		})
		late, said := publish(p, tc.script, "5", "late"), &harness.LineLog{}
		late.Env = append(late.Env, "PGOPTIONS=-c default_transaction_isolation="+strings.ReplaceAll(tc.isolation, " ", `\ `))
		late.Stdout, late.Stderr = said, said
		if err := late.Start(); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, harness.Soon, "stale holder that waits", func() bool {
			return p.Must("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "1"
		})
		if _, err := io.WriteString(in, "COMMIT;\n"); err != nil {
			t.Fatal(err)
		}
		in.Close()
		if err := newer.Wait(); err != nil {
			t.Fatal(err)
		}
		_ = late.Wait() // the exit code is checked instead
		told := strings.Join(said.Lines(), "\n")
		if got := p.Must("SELECT body FROM report"); late.ProcessState.Success() || got != "newer" || !strings.Contains(told, tc.says) {
			t.Errorf("%s, %s: exit code %d, the report is %q\n%s", tc.script, tc.isolation, late.ProcessState.ExitCode(), got, told)
		}
	}
}

// PostgreSQL refuses a report without a token, with a malformed one, and with a smaller one. The same token passes twice.
func TestPostgreSQLRefusesMalformedTokens(t *testing.T) {
	t.Parallel()
	p := startReports(t)
	for _, script := range []string{"publish-row.sh", "publish-rows.sh"} {
		for _, tc := range []struct {
			token string
			ok    bool
		}{{"5", true}, {"5", true}, {"", false}, {"9; DROP TABLE report", false}, {"4", false}, {"1795187352000823", true}} {
			out, err := publish(p, script, tc.token, "by "+tc.token).CombinedOutput()
			if (err == nil) != tc.ok {
				t.Errorf("%s, token %q: %v\n%s", filepath.Base(script), tc.token, err, out)
			}
		}
		if got := p.Must("SELECT body FROM report"); got != "by 1795187352000823" {
			t.Errorf("%s: the report is %q", script, got)
		}
		p.Must("UPDATE report SET fence = 0")
	}
}
