package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/internal/testtier"
)

const password = "hush-hush"

// beats is a configuration with a job that prints a line each second.
func beats(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(file, []byte("[jobs.beat]\nschedule = \"* * * * * *\"\ncommand = \"echo boom\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// startWith starts a command on a Redis, with stderr in its stdout.
func startWith(t *testing.T, url string, args ...string) *program {
	t.Helper()
	line := slices.Concat([]string{"sh", "-c", `exec "$@" 2>&1`, "sh", "cronclave", "--config", beats(t)}, args)
	if slices.Contains(args, "--trial") { // as a demo does it
		line[2] = "url=$CRONCLAVE_REDIS; unset CRONCLAVE_REDIS; exec \"$@\" 2>&1 <<END\n$url\nEND"
	}
	return startProcess(t, []string{"CRONCLAVE_REDIS=" + url}, line...)
}

// withAuth is the URL of a server for a client with a password.
func withAuth(s *miniredis.Miniredis, password string) string {
	return "redis://:" + password + "@" + s.Addr() + "/0"
}

// repeats has a server that does not know AUTH and HELLO.
func repeats(s *miniredis.Miniredis) { forget(s, "AUTH", "HELLO") }

// forget has a server that does not know some commands, and repeats what it was sent, as Redis does.
func forget(s *miniredis.Miniredis, commands ...string) {
	refuse(s, func(cmd string, args []string) string {
		return "ERR unknown command '" + cmd + "', with args beginning with: '" + strings.Join(args, "' '") + "'"
	}, commands...)
}

func refuse(s *miniredis.Miniredis, reply func(cmd string, args []string) string, commands ...string) {
	s.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
		if !slices.Contains(commands, cmd) {
			return false
		}
		p.WriteError(reply(cmd, args))
		return true
	})
}

// TestRefusals has servers that answer, but not as they should: each is told as what it is, by the commands that give up at once and
// by a replica, which tries on where that may help.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const format = "cronclave:default:format"
	for _, tc := range []struct {
		name    string
		prepare func(*miniredis.Miniredis)
		auth    string // the client's password
		code    int    // of the commands
		says    []string
		logs    string // the replica's word; "" if it gives up, too
	}{
		{
			"no password", func(s *miniredis.Miniredis) { s.RequireAuth(password) }, "",
			69, []string{"refuses the credentials (", "NOAUTH", "CRONCLAVE_REDIS, [redis].url or [redis].password_file"}, "Redis refuses the credentials; trying again",
		},
		{
			"wrong password", func(s *miniredis.Miniredis) { s.RequireAuth("another") }, password,
			69, []string{"refuses the credentials (", "WRONGPASS"}, "Redis refuses the credentials; trying again",
		},
		{
			"wrong password before Redis 6", func(s *miniredis.Miniredis) { s.SetError("ERR invalid password") }, password,
			69, []string{"refuses the credentials (", "invalid password"}, "Redis refuses the credentials; trying again",
		},
		{
			"a password too many before Redis 6", func(s *miniredis.Miniredis) { s.SetError("ERR Client sent AUTH, but no password is set") }, password,
			69, []string{"refuses the credentials (", "no password is set"}, "Redis refuses the credentials; trying again",
		},
		{
			"no permission", func(s *miniredis.Miniredis) {
				s.SetError("NOPERM User cron has no permissions to run the 'ping' command")
			}, "",
			69, []string{"does not permit its user what is needed (", "NOPERM User cron", "ACL SETUSER default ~cronclave:default:* &cronclave:default:* +ping"}, "Redis does not permit its user what is needed; trying again",
		},
		{
			"not ready", func(s *miniredis.Miniredis) { s.SetError("LOADING Redis is loading the dataset in memory") }, "",
			69, []string{"answers with an error: ", "LOADING"}, "Redis answers with an error; trying again",
		},
		{
			"AUTH is repeated", repeats, password,
			69, []string{"answers with an error: ", "unknown command"}, "Redis answers with an error; trying again",
		},
		{
			"foreign format", func(s *miniredis.Miniredis) { _ = s.Set(format, "v0.9-beta") }, "",
			1, []string{"this Redis can't coordinate", format + ` is "v0.9-beta"`, "take another namespace or database"}, "",
		},
		{
			"foreign type", func(s *miniredis.Miniredis) { s.HSet(format, "a", "b") }, "",
			1, []string{"this Redis can't coordinate", format, "take another namespace or database"}, "",
		},
		{
			"newer format", func(s *miniredis.Miniredis) { _ = s.Set(format, "3") }, "",
			2, []string{"newer format", "update cronclave"}, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := miniredis.RunT(t)
			tc.prepare(s)
			url := "redis://" + s.Addr() + "/0"
			if tc.auth != "" {
				url = withAuth(s, tc.auth)
			}
			for _, args := range [][]string{{"status"}, {"history"}, {"exec", "beat"}, {"fence", "reports", "5"}} {
				said := startWith(t, url, args...).end(t, tc.code)
				wantWords(t, said, tc.says)
				if strings.Contains(said, "can't be reached") {
					t.Errorf("%s: Redis was reached:\n%s", args, said)
				}
			}
			r := startWith(t, url, "run", "--trial") // miniredis has no settings to look at
			if tc.logs == "" {
				wantWords(t, r.end(t, tc.code), tc.says)
				return
			}
			said := r.read(t, tc.logs)
			s.Close()
			s.RequireAuth(tc.auth)
			restart(t, s)
			said += r.read(t, "boom")
			r.signal(t, syscall.SIGTERM)
			wantWords(t, said+r.end(t, 0), nil)
		})
	}
}

// restart has a server listen on its port again. For a moment that may be the port of somebody's connection.
func restart(t *testing.T, s *miniredis.Miniredis) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for patience := time.After(time.Minute); ; {
		err := s.Restart()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-patience:
			t.Fatal(err)
		}
	}
}

// wantWords demands words, and no password, in the output.
func wantWords(t *testing.T, said string, words []string) {
	t.Helper()
	for _, want := range words {
		if !strings.Contains(said, want) {
			t.Errorf("nothing of %q in\n%s", want, said)
		}
	}
	if strings.Contains(said, password) {
		t.Errorf("the password shows:\n%s", said)
	}
}

// TestRefusedScript names the missing right of a user that may do all but the last step of exec and fence, and but look at the server, which fence
// does only where it may.
func TestRefusedScript(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	refuse(s, func(cmd string, _ []string) string {
		return "NOPERM this user has no permissions to run the '" + strings.ToLower(cmd) + "' command"
	}, "EVAL", "EVALSHA", "INFO")
	for _, args := range [][]string{{"exec", "beat"}, {"fence", "reports", "5"}} {
		said := startWith(t, "redis://"+s.Addr()+"/0", args...).end(t, 69)
		wantWords(t, said, []string{"does not permit its user what is needed (", "the 'evalsha' command", "ACL SETUSER default ~cronclave:default:* &cronclave:default:* +ping"})
	}
}

// TestForbiddenChannel starts a replica whose user may not subscribe: the replica works, and reports the missing right.
func TestForbiddenChannel(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	refuse(s, func(string, []string) string {
		return "NOPERM this user has no permissions to access one of the channels used as arguments"
	}, "SUBSCRIBE")
	r := startWith(t, "redis://"+s.Addr()+"/0", "run", "--trial", "--log-format", "text") // JSON has \u0026 for &
	const warning = "Redis forbids the channel"
	said := r.read(t, warning) + r.read(t, "boom") + r.read(t, "boom")
	r.signal(t, syscall.SIGTERM)
	if said += r.end(t, 0); strings.Count(said, warning) != 1 {
		t.Errorf("not said once:\n%s", said)
	}
	wantWords(t, said, []string{"NOPERM", "ACL SETUSER default &cronclave:default:granted"})
}

// TestHiddenSettings has a server whose INFO was renamed, as some providers do.
func TestHiddenSettings(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	forget(s, "INFO")
	url := "redis://" + s.Addr() + "/0"
	if got := warningsOf(t, url); len(got) != 2 || got[0].Code != "settings_hidden" || got[1].Code != "no_replica" {
		t.Errorf("warnings %q", got)
	}
	r := startWith(t, url, "run")
	said := r.read(t, "boom")
	r.signal(t, syscall.SIGTERM)
	wantWords(t, said+r.end(t, 0), []string{"settings_hidden"})
}

// TestEmbeddedRedisIsNamed asks an embedded Redis for the status, without and with a replica.
func TestEmbeddedRedisIsNamed(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	const trial = "an embedded Redis: a trial that other machines do not reach"
	want := []redisconn.Warning{{Code: "embedded", Message: trial}, {Code: "no_replica", Message: "no replica is up in namespace default: nothing runs; start replicas, or check --namespace and --redis (if Redis lost its data just now, replicas that are up register within 7s)"}}
	if got := warningsOf(t, s.URL()); !slices.Equal(got, want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
	for i, args := range [][]string{{"run"}, {"run", "--trial"}, {"run", "--embedded-redis"}} {
		r := startWith(t, s.URL(), args...)
		said := r.read(t, "boom")
		if i == 0 {
			awaitWarnings(t, s.URL(), want[:1])
		}
		r.signal(t, syscall.SIGTERM)
		if said += r.end(t, 0); strings.Count(said, trial) != 1 {
			t.Errorf("%s does not say once that it is a trial:\n%s", args, said)
		}
	}
}

func warningsOf(t *testing.T, url string) []redisconn.Warning {
	t.Helper()
	var out, said bytes.Buffer
	var st cluster.Status
	if code := runCommandLine(t.Context(), []string{"status", "--json", "--redis", url}, streams{out: &out, err: &said}); code != 0 || said.Len() > 0 {
		t.Fatalf("exit code %d\n%s", code, &said)
	}
	if err := json.Unmarshal(out.Bytes(), &st); err != nil {
		t.Fatal(err)
	}
	return st.Warnings
}

// awaitWarnings waits until the status has these warnings: a replica registers a moment after its start.
func awaitWarnings(t *testing.T, url string, want []redisconn.Warning) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(90 * time.Second)
	for got := warningsOf(t, url); !slices.Equal(got, want); got = warningsOf(t, url) {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("warnings %q, want %q", got, want)
		}
	}
}

// TestHistoryWithoutAConfiguration asks where only the replicas have one.
func TestHistoryWithoutAConfiguration(t *testing.T) {
	t.Parallel()
	s, rdb, j := redistest.StartJournal(t)
	if err := j.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "far", Seen: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(t.Context(), "cronclave:default:{damaged}:runs", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for job, want := range map[string]struct {
		code      int
		out, said string // the beginning
	}{
		"far":     {0, "no runs\n", ""},
		"fr":      {2, "", "cronclave: no job \"fr\"; did you mean \"far\"?\n"},
		"damaged": {1, "", "cronclave: read the history of namespace default: "}, // something is there
	} {
		var out, said bytes.Buffer
		code := runCommandLine(t.Context(), []string{"history", job, "--redis", s.URL()}, streams{out: &out, err: &said})
		if code != want.code || out.String() != want.out || !strings.HasPrefix(said.String(), want.said) || want.said == "" && said.Len() > 0 {
			t.Errorf("history %s: %d, %q, %q, want %v", job, code, &out, &said, want)
		}
	}
}

// TestTheWholeHistoryIsReadWithoutAConfiguration: a cluster may keep more, and for longer, than the defaults.
func TestTheWholeHistoryIsReadWithoutAConfiguration(t *testing.T) {
	t.Parallel()
	s, rdb, _ := redistest.StartJournal(t)
	const kept = 80
	j, err := journal.New(journal.Config{Redis: rdb, Namespace: "default", Runs: kept, MaxAge: 400 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	var records []journal.Record
	for n := range kept {
		at := today.AddDate(0, 0, -n)
		records = append(records, journal.Record{RunID: fmt.Sprintf("r%d", n), Job: "j", Replica: "a", Outcome: "ok", Token: 1, Trigger: "schedule", Attempt: 1, Tick: at, Started: at, Finished: at.Add(time.Second)})
	}
	if err := errors.Join(j.Record(t.Context(), records), j.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "j", Schedule: []string{"@daily"}, Timezone: "UTC", Enabled: true, Seen: today}})); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken.toml")
	if err := os.WriteFile(broken, []byte("history = { runs = 0 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--config", broken}} {
		for want, args := range map[string][]string{
			fmt.Sprintf(`"tick": %q`, records[kept-1].Tick.Format(time.RFC3339)): {"history", "j", "-n", "1000", "--json"},
			": over\n":              {"why", "j", records[kept-1].Tick.Format(time.RFC3339)},
			" 00:00:00 UTC: over\n": {"why", "j", "-5m"},
			`"fate": "over"`:        {"why", "j", "00:00", "--json"},
		} {
			var out, said bytes.Buffer
			code := runCommandLine(t.Context(), slices.Concat(args, flags, []string{"--redis", s.URL()}), streams{out: &out, err: &said})
			if code != 0 || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "older records are dropped") {
				t.Errorf("%v: %d, %q, want %q\n%s", args, code, &said, want, &out)
			}
		}
	}
}

// TestHistoryNotesItsDefault: if there are more records than the default, a note says so; with -n, or with exactly as many, it does not.
func TestHistoryNotesItsDefault(t *testing.T) {
	t.Parallel()
	s, _, j := redistest.StartJournal(t)
	var records []journal.Record
	for n := range 51 {
		at := time.Now().Add(-time.Duration(n) * time.Minute).UTC().Truncate(time.Second)
		records = append(records, journal.Record{RunID: fmt.Sprint("r", n), Job: "j", Tick: at, Finished: at, Outcome: "missed", Reason: "down", Trigger: "schedule"})
	}
	const cut = "cronclave: only the newest 50 records are shown; -n N shows more\n"
	for _, tc := range []struct {
		records []journal.Record
		args    []string
		want    string
	}{
		{records[:50], nil, ""}, {records[50:], nil, cut}, {nil, []string{"--json"}, cut}, {nil, []string{"-n", "50"}, ""},
	} {
		if err := j.Record(t.Context(), tc.records); err != nil {
			t.Fatal(err)
		}
		var out, said bytes.Buffer
		code := runCommandLine(t.Context(), slices.Concat([]string{"history", "j", "--redis", s.URL()}, tc.args), streams{out: &out, err: &said})
		if code != 0 || said.String() != tc.want {
			t.Errorf("%v: %d, %q, want %q\n%s", tc.args, code, &said, tc.want, &out)
		}
	}
}

// TestPasswordIsNotSentInTheClear names a server by redis:// that the file names by rediss://. It hears no password, and the user is told why.
func TestPasswordIsNotSentInTheClear(t *testing.T) {
	t.Parallel()
	heard, addr := demandPassword(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "jobs.toml")
	text := "[redis]\nurl = \"rediss://" + addr + "/0\"\npassword_file = \"password\"\n"
	for name, text := range map[string]string{file: text, filepath.Join(dir, "password"): password + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	code := runCommandLine(t.Context(), []string{"history", "--config", file, "--redis", "redis://" + addr + "/0"}, streams{out: io.Discard, err: &said})
	if code != exitUnavailable || !strings.Contains(said.String(), "the password of [redis].password_file was not sent") {
		t.Errorf("exit code %d, said %s", code, &said)
	}
	if text := heard(); text == "" || strings.Contains(text, password) {
		t.Errorf("the server has heard %q", text)
	}
}

// demandPassword is a server that answers everything with NOAUTH. heard is what it was sent.
func demandPassword(t *testing.T) (heard func() string, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var text strings.Builder
	var serving sync.WaitGroup
	serve := func(conn net.Conn) {
		defer conn.Close()
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			text.Write(buffer[:n])
			mu.Unlock()
			for range bytes.Count(buffer[:n], []byte("*")) { // one for each command
				_, _ = io.WriteString(conn, "-NOAUTH Authentication required.\r\n")
			}
		}
	}
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}, l.Addr().String()
}

// lockNames matches locks by the names of package locking. A name with the prefix of the keys is a key, which is named as it is in Redis.
var lockNames = regexp.MustCompile(`(?:^|[^:])\{[^{} ]*\}:`)

// TestErrorsNameJobsAndNotLocks collects what all commands and a replica say where Redis refuses what they ask of their locks, and where other programs
// have data under their keys.
func TestErrorsNameJobsAndNotLocks(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(file, []byte(`
[jobs.beat]
schedule = "* * * * * *"
command  = "true"
[jobs.load]
schedule = "* * * * * *"
command  = "true"
pool     = "warehouse"
[pools.warehouse]
slots = 1
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, foreign := range map[string]bool{"refused scripts": false, "foreign data": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := miniredis.RunT(t)
			var refused atomic.Bool
			s.Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
				refuses := cmd == "INFO" || refused.Load() && (cmd == "EVAL" || cmd == "EVALSHA") // lock asks for the server's settings, which this one has not
				if refuses {
					p.WriteError("NOPERM this user has no permissions to run the '" + strings.ToLower(cmd) + "' command")
				}
				return refuses
			})
			start := func(args ...string) *program {
				line := slices.Concat([]string{"sh", "-c", `exec "$@" 2>&1`, "sh", "cronclave", "--config", file}, args)
				return startProcess(t, []string{"CRONCLAVE_REDIS=redis://" + s.Addr() + "/0"}, line...)
			}
			replica := start("run", "--log-level", "trace")
			said := replica.read(t, "finished.*load") // both jobs are known, and due each second
			spoil := func() {
				refused.Store(!foreign)
				for _, name := range []string{"{beat}:job", "{warehouse}:pool", "{deploy}:lock", "{leader}:leader"} {
					if foreign {
						s.Del("cronclave:default:" + name) // else a hash stays one
						_ = s.Set("cronclave:default:"+name, "of something else")
					}
				}
			}
			spoil()
			said += replica.read(t, "claim refused|due ticks wait|can be acquired")
			replica.signal(t, syscall.SIGTERM)
			said += replica.end(t, 0)
			spoil() // damage that the process may have mended
			for _, args := range [][]string{
				{"exec", "beat"}, {"exec", "load"}, {"cancel", "beat"}, {"pause", "beat"}, {"resume", "beat"}, {"trigger", "beat"}, {"status"}, {"history"},
				{"lock", "deploy", "--", "true"}, {"lock", "deploy", "--fair", "--wait", "1s", "--", "true"}, {"lock", "--pool", "warehouse", "--", "true"},
			} {
				p := start(args...)
				text, _ := io.ReadAll(p.out)
				_ = p.Wait() // only the text counts
				said += strings.Join(args, " ") + ": " + string(text)
			}
			wantWords(t, said, []string{`job "beat"`, `lock "deploy"`, `pool "warehouse"`})
			for line := range strings.Lines(said) {
				if lockNames.MatchString(line) {
					t.Errorf("a lock by the name that it has in the program: %s", line)
				}
			}
		})
	}
}
