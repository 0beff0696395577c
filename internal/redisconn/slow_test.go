package redisconn

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
)

// A slowServer is a Redis in memory for tests with fake time. It looks like Redis 7 with an append-only file and without CONFIG.
type slowServer struct {
	*miniredis.Miniredis
	roundTrip time.Duration
	replies   int    // replies after which the server hangs; negative if it never does
	refused   string // a command that the user may not run
	copy      string // the line of a Redis replica in INFO

	mu    sync.Mutex
	hung  bool
	pumps sync.WaitGroup
}

func startSlow(t *testing.T, s *slowServer) *Conn {
	t.Helper()
	s.Miniredis = miniredis.NewMiniRedis()
	first, err := s.Dial() // starts the server without a listener
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	s.Server().SetPreHook(s.answer)
	u, err := config.ParseRedisURL("redis://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(Source{URL: u, dial: s.connect})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		s.Miniredis.Close()
		s.pumps.Wait()
	})
	return c
}

// answer answers the commands that miniredis does not know.
func (s *slowServer) answer(p *server.Peer, cmd string, args ...string) bool {
	switch {
	case cmd == s.refused:
		p.WriteError("NOPERM this user has no permissions to run the '" + strings.ToLower(cmd) + "' command")
	case cmd == "INFO":
		p.WriteBulk(healthy[args[0]] + map[string]string{"replication": s.copy}[args[0]])
	case cmd == "WAIT":
		p.WriteInt(0)
	case cmd == "EVAL_RO", cmd == "EVALSHA_RO", cmd == "SPUBLISH", cmd == "CLIENT":
		p.WriteOK()
	default:
		return false
	}
	return true
}

// connect returns a connection whose replies arrive after a round trip. Requests are never blocked by replies that nobody reads.
func (s *slowServer) connect(context.Context, string, string) (net.Conn, error) {
	client, outer := net.Pipe()
	inner, peer := net.Pipe()
	s.Server().ServeConn(peer)
	type reply struct {
		text []byte
		at   time.Time
	}
	queue := make(chan reply, 10_000)
	s.pumps.Go(func() {
		defer inner.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := outer.Read(buf)
			if _, fault := inner.Write(buf[:n]); err != nil || fault != nil {
				return
			}
		}
	})
	s.pumps.Go(func() {
		defer close(queue)
		for {
			buf := make([]byte, 4096)
			n, err := inner.Read(buf)
			if err != nil {
				return
			}
			queue <- reply{buf[:n], time.Now().Add(s.roundTrip)}
		}
	})
	s.pumps.Go(func() {
		for r := range queue {
			time.Sleep(time.Until(r.at))
			if s.hangs() {
				continue
			}
			if _, err := outer.Write(r.text); err != nil {
				_ = outer.Close() // the reader of the requests ends, and closes the other pipe
			}
		}
		_ = outer.Close()
	})
	return client, nil
}

func (s *slowServer) hangs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replies == 0 {
		s.hung = true
		return true
	}
	s.replies--
	return false
}

// faultsOf returns the codes of the findings of level fault.
func faultsOf(d Diagnosis) (codes []string) {
	for _, f := range d.Findings {
		if f.Level == LevelFault {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// TestSlowNetworkIsNoFault: the round trips of doctor may take longer than its time. Then it does not know whether a sound server keeps the promises, and
// must not say that the server breaks them.
func TestSlowNetworkIsNoFault(t *testing.T) {
	t.Parallel()
	for trip := time.Duration(0); trip <= 300; trip += 5 { // later, the first reply is too late, too
		synctest.Test(t, func(t *testing.T) {
			c := startSlow(t, &slowServer{roundTrip: trip * time.Millisecond, replies: -1})
			d := c.Diagnose(t.Context(), "default")
			if codes := faultsOf(d); len(codes) > 0 || d.Verdict == VerdictUnreachable {
				t.Errorf("after round trips of %d ms: %s, faults %q\n%+v", trip, d.Verdict, codes, d.Findings)
			}
			if late := slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Code == "no_answer" }); trip <= 50 && late {
				t.Errorf("after round trips of %d ms: %+v", trip, d.Findings)
			}
		})
	}
}

// TestDoctorEndsInTime: whichever reply is the last one of a server that hangs, doctor ends within the two seconds of docs/engines.md.
func TestDoctorEndsInTime(t *testing.T) {
	t.Parallel()
	for hung, n := true, 0; hung; n++ {
		synctest.Test(t, func(t *testing.T) {
			s := &slowServer{replies: n, roundTrip: time.Millisecond, copy: "slave0:ip=10.0.0.6,port=6379,state=online,offset=1,lag=0\r\n"}
			c := startSlow(t, s)
			c.acked = 1
			began := time.Now()
			d := c.Diagnose(t.Context(), "default")
			_ = c.Close()
			if took := time.Since(began); took > 2*time.Second || d.TookMS != took.Milliseconds() {
				t.Errorf("if the server hangs after %d replies, doctor takes %v, and says %d ms", n, took, d.TookMS)
			}
			s.mu.Lock()
			hung = s.hung
			s.mu.Unlock()
		})
		if n > 1000 {
			t.Fatal("doctor never gets all replies")
		}
	}
}

// TestAddressWithoutAnAnswerIsUnknown: the time of doctor may be too short for another connection.
func TestAddressWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		connect dialFunc
		want    Level
	}{
		{func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, LevelUnknown},
		{func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }, LevelFault},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), probeTime)
			defer cancel()
			s := &subject{connect: tc.connect}
			if found := s.probeCopy(ctx, "10.0.0.6:6379"); len(found) != 1 || found[0].Code != "address" || found[0].Level != tc.want {
				t.Errorf("%+v, want %s", found, tc.want)
			}
			time.Sleep(dialTimeout) // the connection attempt in the background ends
		})
	}
}

// TestWaitIsNotNeeded without [redis].acked_replicas: replicas do not send it, and some servers and users do not have it.
func TestWaitIsNotNeeded(t *testing.T) {
	t.Parallel()
	for acked, want := range map[int]struct {
		holds Holds
		level Level
	}{0: {HoldsYes, LevelSkipped}, 1: {HoldsNo, LevelFault}} {
		synctest.Test(t, func(t *testing.T) {
			c := startSlow(t, &slowServer{replies: -1, refused: "WAIT", copy: "slave0:ip=10.0.0.6,port=6379,state=online,offset=1,lag=0\r\n"})
			c.acked = acked
			d := c.Diagnose(t.Context(), "default")
			checks := d.Servers[0].Checks
			i := slices.IndexFunc(checks, func(k Check) bool { return k.Name == checkAcks })
			if checks[i].Level != want.level || d.Promises[4].Holds != want.holds {
				t.Errorf("with %d acked replicas: %+v, %+v\n%+v", acked, checks[i], d.Promises[4], d.Findings)
			}
		})
	}
}

// TestLateServersAreNotExamined: the servers of a large Cluster share the time of doctor. One that had less than its own time is not called unreachable.
func TestLateServersAreNotExamined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := startSlow(t, &slowServer{})
		ctx, cancel := context.WithTimeout(t.Context(), DiagnosisBound)
		defer cancel()
		var all []*subject
		const masters = 2*mostAtOnce + 1
		for i := range masters {
			one := subject{conn: c, keeps: KeepsAll, cleanUntil: time.Now().Add(DiagnosisBound)}
			rdb := startSlow(t, &slowServer{})
			all = append(all, one.with(rdb, rdb.UniversalClient.(*redis.Client), fmt.Sprintf("10.0.0.%d:6379", i)))
		}
		began := time.Now()
		results := examineSubjects(ctx, all)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%v", took)
		}
		for i, r := range results {
			want, level, code := ServerAway, LevelFault, "unreachable"
			if i >= mostAtOnce {
				want, level, code = serverNotExamined, LevelUnknown, "not_examined"
			}
			if f := r.findings[0]; r.server.State != want || f.Level != level || f.Code != code || (i >= mostAtOnce) != strings.Contains(f.Message, "not examined") {
				t.Errorf("server %d: %+v %+v", i, r.server, r.findings)
			}
		}
		if v := c.judgeReach(results); v != VerdictUnreachable {
			t.Errorf("%s", v)
		}
	})
}
