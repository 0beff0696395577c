package redis

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/testtier"
)

// diagnosis runs doctor --json with an exit code. It runs doctor again if a busy machine took longer than a check may take.
func diagnosis(t *testing.T, code int, url string) (d redisconn.Diagnosis) {
	t.Helper()
	var said harness.CommandLine
	harness.Eventually(t, harness.Soon, "judgement in time", func() bool {
		said = harness.RunCommand(t, []string{"CRONCLAVE_REDIS=" + url}, "doctor", "--json", "--namespace", "it")
		d = redisconn.Diagnosis{}
		harness.Must(t, json.Unmarshal([]byte(said.Stdout), &d))
		late := func(f redisconn.Finding) bool { return strings.Contains(f.Message, "no answer within") }
		return code == said.Code || !slices.ContainsFunc(d.Findings, late)
	})
	said.Want(t, code, "")
	return d
}

// broken returns the promises that do not hold, and codes the findings that are more than costs, each sorted.
func broken(d redisconn.Diagnosis) (promises, codes string) {
	for _, p := range d.Promises {
		if p.Holds != redisconn.HoldsYes {
			promises += p.ID + " "
		}
	}
	found := map[string]bool{}
	for _, f := range d.Findings {
		if f.Level == redisconn.LevelFault || f.Level == redisconn.LevelUnknown {
			found[f.Code] = true
		}
	}
	return strings.TrimSpace(promises), strings.Join(slices.Sorted(maps.Keys(found)), " ")
}

func wantBroken(t *testing.T, d redisconn.Diagnosis, promises, codes string) {
	t.Helper()
	if p, c := broken(d); p != promises || c != codes {
		t.Errorf("broken are %q by %q, want %q by %q\n%+v", p, c, promises, codes, d.Findings)
	}
}

// Each fault of a server is found, and no other: doctor names the promises that do not hold, and leaves no key behind.
func TestDoctorFindsFaults(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const persist = "--appendonly yes"
	for _, tc := range []struct {
		name, args, promises, codes string
	}{
		{"all as it should be", persist + " --appendfsync always", "", ""},
		{"a second may be lost", persist + " --appendfsync everysec", "", ""},
		{"half a minute may be lost", persist + " --appendfsync no", "", ""},
		{"nothing on disk", "--save ''", "P1 P6", "no_persistence"},
		{"snapshots", "--save 3600 1", "P1 P6", "snapshots_only"},
		{"evicts locks", persist + " --maxmemory 100mb --maxmemory-policy allkeys-lru", "P1 P3 P5", "unfit"},
		{"evicts what expires", persist + " --maxmemory 100mb --maxmemory-policy volatile-ttl", "P3 P6", "eviction"},
		{"evicts without a limit", persist + " --maxmemory-policy allkeys-lru", "", ""},
		{"full", persist + " --maxmemory 100kb --maxmemory-policy noeviction", "P5 P6", "writes_refused"},
		{"too few replicas to write", persist + " --min-replicas-to-write 1", "P5 P6", "writes_refused"},
		{"a replica", persist + " --replicaof 127.0.0.1 1", "P1 P3 P5", "unfit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(tc.args)
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			s := harness.StartRedis(t, harness.RedisOpts{Args: args})
			code := 0
			if tc.codes != "" {
				code = 1
			}
			d := diagnosis(t, code, s.URL)
			wantBroken(t, d, tc.promises, tc.codes)
			if keys := s.Client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
				t.Errorf("doctor left %q", keys)
			}
			syncs := slices.ContainsFunc(d.Findings, func(f redisconn.Finding) bool { return f.Code == "appendfsync" && f.Level == redisconn.LevelWarning })
			if late := strings.Contains(tc.args, "appendonly") && !strings.Contains(tc.args, "always") && !strings.HasPrefix(tc.codes, "unfit"); syncs != late {
				t.Errorf("the finding about appendfsync: %v, want %v", syncs, late)
			}
		})
	}
}

// Users without some rights, or with a wrong password: CONFIG is not needed, and what is missing is named with the rule that gives it.
func TestDoctorJudgesRights(t *testing.T) {
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{Persist: true})
	c := harness.NewClusterOn(t, s, harness.OneJob)
	for _, tc := range []struct{ name, rights, promises, codes, says string }{
		{"config", "+@all -config", "", "", ""},
		{"info", "+@all -info -config", "P1 P3 P5 P6", "rights settings_hidden", "info"},
		{"scripts", "+@all -@scripting", "P1 P2 P3 P4 P5 P6", "rights scripts", "evalsha"},
		{"messages", "+@all -@pubsub", "P1", "messages rights", "publish"},
		{"streams", "+@all -xadd", "P5 P6", "rights", "xadd"},
		{"read-only scripts", "+@all -eval_ro", "", "", "eval_ro"},
	} {
		name := strings.ReplaceAll(tc.name, " ", "-")
		u := newUser(t, c, name)
		u.grant(t, name+" ~cronclave:it:* &cronclave:it:* "+tc.rights)
		code := 0
		if tc.codes != "" {
			code = 1
		}
		d := diagnosis(t, code, u.URL)
		wantBroken(t, d, tc.promises, tc.codes)
		for _, f := range d.Findings {
			if f.Code == "rights" && (!strings.Contains(f.Message, tc.says) || !strings.HasPrefix(f.Remedy, "ACL SETUSER "+name+" ~cronclave:it:*")) {
				t.Errorf("%s: %+v", tc.name, f)
			}
		}
	}
	rule, _ := documentedRights(t)
	u := newUser(t, c, "cron")
	u.grant(t, "cron "+rule)
	wantBroken(t, diagnosis(t, 0, u.URL), "", "")
	if d := diagnosis(t, 69, strings.Replace(u.URL, "secret", "wrong", 1)); d.Verdict != redisconn.VerdictUnreachable || !strings.Contains(d.Findings[0].Message, "refuses the credentials") || strings.Contains(fmt.Sprint(d), "wrong@") {
		t.Errorf("%+v", d)
	}
}

// A name that the certificate of the server does not have is an unreachable Redis, and a right one is judged, with its version of TLS.
func TestDoctorChecksTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "test CA")
	s := harness.StartRedis(t, harness.RedisOpts{Persist: true})
	p := harness.StartProxy(t, s.Instance.Addr(), &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "redis.test")}, MinVersion: tls.VersionTLS12}, nil)
	dir := t.TempDir()
	writePEM(t, filepath.Join(dir, "ca.crt"), "CERTIFICATE", ca.cert.Raw)
	for name, want := range map[string]struct {
		code int
		says string
	}{"redis.test": {0, "TLS 1.3"}, "other.test": {69, "certificate is valid for redis.test, not other.test"}} {
		path := filepath.Join(dir, name+".toml")
		harness.WriteFile(t, path, fmt.Sprintf("[redis]\nurl = %q\ntls = { ca_file = %q, server_name = %q }\n%s", p.URL, filepath.Join(dir, "ca.crt"), name, harness.OneJob))
		harness.RunCommand(t, nil, "doctor", "-o", "wide", "-c", path).Want(t, want.code, want.says)
	}
}

// A server that hangs is reported, with what it did not answer. TestDoctorEndsInTime of internal/redisconn has the bound of two seconds, in simulated time.
func TestDoctorOfAHungServer(t *testing.T) {
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{})
	s.Pause()
	defer s.Unpause()
	d := diagnosis(t, 69, s.URL)
	if !strings.Contains(d.Findings[0].Message, "no answer within 1.4s") {
		t.Errorf("after %d ms: %+v", d.TookMS, d.Findings)
	}
}

// A sound server behind a slow network breaks no promise, also if doctor's time is too short for all checks.
func TestDoctorOnASlowNetwork(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{Persist: true})
	for _, delay := range []time.Duration{20, 150, 250} {
		p := harness.StartProxy(t, s.Instance.Addr(), nil, func(reply []byte) []byte {
			time.Sleep(delay * time.Millisecond)
			return reply
		})
		said := harness.RunCommand(t, []string{"CRONCLAVE_REDIS=" + p.URL}, "doctor", "--json", "--namespace", "it")
		var d redisconn.Diagnosis
		harness.Must(t, json.Unmarshal([]byte(said.Stdout), &d))
		for _, f := range d.Findings {
			if f.Level == redisconn.LevelFault && f.Code != "unreachable" { // which a busy machine may add to the delay
				t.Errorf("with a delay of %d ms: %+v", delay, f)
			}
		}
	}
}

// A user or a server without WAIT is no fault, unless [redis].acked_replicas needs it.
func TestDoctorNeedsNoWait(t *testing.T) {
	t.Parallel()
	program := harness.MustProgram(t)
	s := harness.StartFrom(t, program, harness.Persistent)
	host, port, _ := strings.Cut(s.Instance.Addr(), ":")
	harness.StartFrom(t, program, append(slices.Clone(harness.Persistent), "--replicaof", host, port))
	harness.Eventually(t, harness.Soon, "replica", func() bool {
		return strings.Contains(s.Client.Info(t.Context(), "replication").Val(), "state=online")
	})
	u := newUser(t, harness.NewClusterOn(t, s, harness.OneJob), "patient")
	u.grant(t, "patient ~cronclave:it:* &cronclave:it:* +@all -wait")
	d := diagnosis(t, 1, u.URL)
	wantBroken(t, d, "P1 P3", "unacknowledged")
	for _, c := range d.Servers[0].Checks {
		if c.Name == "WAIT" && (c.Level != redisconn.LevelSkipped || c.Fact != "refused, not needed") {
			t.Errorf("%+v", c)
		}
	}
}

// A Redis whose clock is an hour ahead is found.
func TestDoctorReadsTheClock(t *testing.T) {
	t.Parallel()
	s := startSettable(t)
	for offset, code := range map[time.Duration]int{0: 0, 2 * time.Second: 0, time.Hour: 1} {
		s.set(t, offset)
		d := diagnosis(t, code, s.URL)
		i := slices.IndexFunc(d.Findings, func(f redisconn.Finding) bool { return f.Code == "clock_off" })
		if (i >= 0) != (offset > 0) {
			t.Errorf("%v: %+v", offset, d.Findings)
		}
		if offset == time.Hour && !strings.Contains(d.Findings[max(i, 0)].Message, "so much earlier by this one") {
			t.Errorf("%+v", d.Findings)
		}
	}
}

// Sentinels, a Cluster and a quorum are judged by each of their masters.
func TestDoctorJudgesEachMaster(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	t.Run("sentinel", func(t *testing.T) {
		s := harness.StartTrio(t, nil)
		wantBroken(t, diagnosis(t, 1, s.URL), "P1 P3", "unacknowledged")
		path := filepath.Join(t.TempDir(), "jobs.toml")
		for acked, codes := range map[int]string{2: "", 3: "acked_replicas"} {
			harness.WriteFile(t, path, fmt.Sprintf("[redis]\nurl = %q\nacked_replicas = %d\nack_timeout = \"500ms\"\n%s", s.URL, acked, harness.OneJob))
			said := harness.RunCommand(t, nil, "doctor", "-c", path)
			said.Want(t, len(codes)/len("acked_replicas"), codes)
		}
		// A replica that announces a port where nobody listens.
		harness.Must(t, s.Servers[1].Client.ConfigSet(t.Context(), "replica-announce-port", "1").Err())
		harness.Must(t, s.Servers[0].Client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
		harness.Eventually(t, harness.Soon, "finding about the address", func() bool {
			_, codes := broken(diagnosis(t, 1, s.URL))
			return codes == "address unacknowledged"
		})
	})
	t.Run("cluster", func(t *testing.T) {
		k := harness.StartCluster(t)
		d := diagnosis(t, 1, k.URL)
		if len(d.Servers) != len(k.Nodes) {
			t.Errorf("%+v", d.Servers)
		}
		for _, s := range d.Servers {
			for _, c := range s.Checks {
				if c.Level == redisconn.LevelFault || c.Name == "scripts" && c.Level != redisconn.LevelOK {
					t.Errorf("%s: %+v", s.Address, c)
				}
			}
		}
		wantBroken(t, d, "P1 P3", "unacknowledged") // of a Cluster, any master may get a replica
		harness.Must(t, k.Nodes[1].Client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
		harness.Must(t, k.Nodes[1].Client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
		for _, f := range diagnosis(t, 1, k.URL).Findings {
			if f.Code == "unfit" && !slices.Equal(f.Servers, []string{k.Nodes[1].Instance.Addr()}) {
				t.Errorf("%+v", f)
			}
		}
	})
	t.Run("quorum", func(t *testing.T) {
		history := harness.StartRedis(t, harness.RedisOpts{Persist: true})
		servers := []*harness.RedisServer{harness.StartRedis(t, harness.RedisOpts{Persist: true}), harness.StartRedis(t, harness.RedisOpts{Persist: true}), harness.StartRedis(t, harness.RedisOpts{Persist: true})}
		judge := func(code int, urls []string, says string) {
			t.Helper()
			path := filepath.Join(t.TempDir(), "jobs.toml")
			harness.WriteFile(t, path, fmt.Sprintf("[redis]\nurl = %q\nquorum = [\"%s\"]\n%s", history.URL, strings.Join(urls, `", "`), harness.OneJob))
			harness.RunCommand(t, nil, "doctor", "-c", path).Want(t, code, says)
		}
		urls := harness.UrlsOf(servers)
		judge(0, urls, "keeps locks: up")
		judge(1, []string{urls[0], urls[1], strings.Replace(urls[1], "127.0.0.1", "localhost", 1)}, "same_server")
		servers[1].Kill()
		judge(1, urls, "[quorum]")
		servers[2].Kill()
		judge(69, urls, "can't be judged")
	})
}

// The text for a good server, with all that varies replaced.
func TestDoctorText(t *testing.T) {
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{Persist: true})
	said := harness.RunCommand(t, nil, "doctor", s.URL)
	said.Want(t, 0, "")
	got := said.Stdout
	for pattern, word := range map[string]string{regexp.QuoteMeta(s.URL): "URL", `judged in \d+ ms`: "judged in N ms", `(redis|valkey) [\d.]+`: "ENGINE", `[-+]\d+ms( ±\d+ms)?`: "+Nms", `\d+\.\d\d ms, at most \d+\.\d\d ms in \d+ calls`: "LATENCY"} {
		got = regexp.MustCompile(pattern).ReplaceAllString(got, word)
	}
	want := `URL (single), namespace default: all promises hold (judged in N ms)

URL keeps all: up
✓ version      ENGINE
✓ persistence  appendonly, appendfsync always
✓ eviction     noeviction, no maxmemory
✓ replication  master with 0 replicas
✓ clock        +Nms (this machine minus Redis)
✓ latency      LATENCY
✓ rights       all 52 commands of user default
✓ scripts      run, and refuse a stale token
✓ messages     arrive
- WAIT         not needed
✓ TLS          none, on this machine
- addresses    not needed

PROMISE         HOLDS                   BECAUSE OF
P1 Once         yes, within its limits
P2 Never early  yes
P3 Exclusive    yes, within its limits
P4 Fenced       yes
P5 Not lost     yes, within its limits
P6 Accounted    yes
P7 No orphans   yes
P8 Validated    yes
P9 Bounded      yes

limits of this Redis (single):
· cronclave knows of no failover: without the server, ticks wait up to their start_deadline and are
  then missed. redis-sentinel:// and redis-cluster:// have a failover. P5
· If a master is silent for a quarter of a lease, about 8 s by default, runs may be stopped. P3
· If the clock jumps forward by 1 % of a lease (0.3 s by default), also by a failover to a clock
  that is ahead, two runs may overlap. P3
· If the clock of Redis is set back by more than a minute, ticks of the repeated time run once more.
  P1
`
	if got != want {
		t.Errorf("doctor prints\n%s\nwant\n%s", got, want)
	}
}
