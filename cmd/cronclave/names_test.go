package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// lockNames matches locks by the names of package locking. A name with the prefix of the keys is a key, which is named as it is in Redis.
var lockNames = regexp.MustCompile(`(?:^|[^:])\{[^{} ]*\}:`)

// TestErrorsNameJobsAndNotLocks collects what all commands and a replica say where Redis refuses what they ask of their locks, and where other programs
// have data under their keys.
func TestErrorsNameJobsAndNotLocks(t *testing.T) {
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
				for _, name := range []string{"{beat}:job", "{warehouse}:pool", "{deploy}:lock", "{leader}:office"} {
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
