package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/locking"
)

// A subject is a server that [Conn.Diagnose] examines.
type subject struct {
	conn    *Conn // judges the settings of the server
	rdb     *redis.Client
	at      string
	keeps   Keeps
	rights  Rights
	prefix  string   // cronclave:NAMESPACE:
	tag     string   // hash tag of the keys of probes; "" if the server has no slot of its Cluster
	mayFail bool     // a failover leads clients to an address that the servers announce
	connect dialFunc // connects to Redis replicas of the server; nil if that is not checked
	// cleanUntil is the end of the time in which probes may delete their keys.
	cleanUntil time.Time
}

// An examination is the result of the checks of a server.
type examination struct {
	server   Server
	kind     Kind // the kind that the server reports, if the configuration implies another one; otherwise ""
	clock    *ClockOffset
	checks   []Check
	findings []Finding
}

// The names of the checks.
const (
	checkVersion     = "version"
	checkPersistence = "persistence"
	checkEviction    = "eviction"
	checkReplication = "replication"
	checkClock       = "clock"
	checkLatency     = "latency"
	checkRights      = "rights"
	checkScripts     = "scripts"
	checkMessages    = "messages"
	checkAcks        = "WAIT"
	checkTLS         = "TLS"
	checkAddresses   = "addresses"
)

// keyTime is the time after which Redis deletes the keys of a probe that could not delete them itself.
const keyTime = 10 * time.Second

func (s *subject) key() string { return s.prefix + "{" + s.tag + "}:probe" }

// note adds a check with its findings.
func (e *examination) note(name, fact string, found ...Finding) {
	level := LevelOK
	if fact == notTried || fact == notNeeded || fact == refusedFact || fact == hiddenFact {
		level = LevelSkipped
	}
	for i := range found {
		if found[i].Level.rank() > level.rank() {
			level = found[i].Level
		}
		found[i].Servers = []string{e.server.Address}
	}
	e.checks = append(e.checks, Check{name, level, fact})
	e.findings = append(e.findings, found...)
}

// examine reads the settings of the server, and probes what a user with these credentials can do.
func (s *subject) examine(ctx context.Context) (e examination) {
	end, _ := ctx.Deadline() // a diagnosis has one
	short := time.Until(end) < settingsTime
	asking, cancel := context.WithTimeout(ctx, settingsTime)
	h, err := s.conn.examineServer(asking, s.rdb, s.at)
	cancel()
	e = examination{server: *h.onlyServer(), kind: h.Redis.Kind, checks: []Check{}}
	e.server.Keeps = s.keeps
	var unfit []Finding
	if err != nil {
		unfit = []Finding{s.judgeError(err, short && isLate(ctx, err), &e.server)}
	}
	if e.server.isSilent() {
		e.findings = unfit
		return e
	}
	refused := e.noteSettings(unfit, h.Warnings)
	s.measureClock(ctx, &e)
	s.runProbes(ctx, &e, refused)
	return e
}

// judgeError returns the finding about a server that can't be examined, and sets the fault of the server. unknown means that the time of the diagnosis
// ended first, which happens to the last masters of a large Cluster. Such a server may be sound.
func (s *subject) judgeError(err error, unknown bool, srv *Server) Finding {
	f := errorFinding(s.conn.explainError(err), []string{srv.Address})
	if unknown {
		srv.State, f.Code, f.Level, f.Promises = serverNotExamined, "not_examined", LevelUnknown, []string{"P1", "P3", "P5", "P6"}
		f.Message = fmt.Sprintf("not examined: the %v that doctor takes for all servers ended first; run doctor nearer to Redis, or once the other servers answer", DiagnosisBound)
	}
	if s.keeps == KeepsLocks && srv.isSilent() {
		f.Promises = nil
		if !unknown {
			f.Code = "quorum"
		}
	}
	srv.Fault = f.Message
	return f
}

// noteSettings adds the checks that need no probe, with the warnings of [Conn.Examine]. It returns the warnings about refused writes, which belong to
// the check of the rights.
func (e *examination) noteSettings(unfit []Finding, warnings []Warning) []Finding {
	found := map[string][]Finding{e.unfitCheck(): unfit}
	for _, w := range warnings {
		v, known := warningLevels[w.Code]
		if !known {
			v.check, v.level = checkVersion, LevelFault
		}
		found[v.check] = append(found[v.check], Finding{Code: w.Code, Level: v.level, Message: w.Message, Promises: strings.Fields(v.promises)})
	}
	srv := &e.server
	version := cmp.Or(srv.Version, hiddenFact)
	if version[0] >= '0' && version[0] <= '9' {
		version = "redis " + version
	}
	e.note(checkVersion, version, found[checkVersion]...)
	persistence := string(srv.Persistence)
	if srv.Persistence == AppendOnly {
		persistence += ", appendfsync " + cmp.Or(srv.fsync, hiddenFact)
	}
	e.note(checkPersistence, cmp.Or(persistence, hiddenFact), found[checkPersistence]...)
	eviction := cmp.Or(srv.policy, hiddenFact)
	if srv.MemoryLimit != nil && *srv.MemoryLimit == 0 {
		eviction += ", no maxmemory"
	}
	e.note(checkEviction, eviction, found[checkEviction]...)
	replication := cmp.Or(srv.role, hiddenFact)
	if srv.Replicas != nil {
		replication += fmt.Sprintf(" with %d replicas", *srv.Replicas)
	}
	e.note(checkReplication, strings.Replace(replication, "slave", "replica", 1), found[checkReplication]...)
	return found[checkRights]
}

// unfitCheck returns the check that an unfit server fails.
func (e *examination) unfitCheck() string {
	switch {
	case e.server.role == "slave":
		return checkReplication
	case strings.HasPrefix(e.server.policy, "allkeys"):
		return checkEviction
	}
	return checkVersion
}

// A ClockOffset is the difference between a clock and the clock of Redis, in milliseconds. It is measured by a call to Redis. Because the call takes
// time, the true difference is only known to be within ErrorMS of MS.
type ClockOffset struct{ MS, ErrorMS int64 }

// MaxClockOffset is the largest offset of a clock that causes no warning, in milliseconds.
const MaxClockOffset = 500

// Least returns the smallest absolute value that the true offset can have.
func (o ClockOffset) Least() int64 { return max(o.MS, -o.MS) - o.ErrorMS }

// Excessive reports whether the offset is certainly larger than [MaxClockOffset].
func (o ClockOffset) Excessive() bool { return o.Least() > MaxClockOffset }

// String returns the offset. If the error is a large part of MaxClockOffset, the text includes it.
func (o ClockOffset) String() string {
	if o.ErrorMS < MaxClockOffset/10 {
		return fmt.Sprintf("%+dms", o.MS)
	}
	return fmt.Sprintf("%+dms ±%dms", o.MS, o.ErrorMS)
}

// readClock returns the offset of this machine's clock from the clock of a server, and the duration of the call.
func readClock(ctx context.Context, rdb *redis.Client) (o ClockOffset, took time.Duration, err error) {
	began := time.Now()
	at, err := rdb.Time(ctx).Result()
	took = time.Since(began)
	if err != nil {
		return o, took, fmt.Errorf("ask Redis for the time: %w", err)
	}
	half := took / 2
	return ClockOffset{began.Add(half).Sub(at).Milliseconds(), half.Milliseconds() + 1}, took, nil
}

// measureClock adds the checks of the clock and of the latency, from up to ten calls in at most a quarter of a second.
func (s *subject) measureClock(ctx context.Context, e *examination) {
	const mostCalls, longest = 10, 250 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var tooks []time.Duration
	for began := time.Now(); len(tooks) < mostCalls && (len(tooks) == 0 || time.Since(began) < longest); {
		o, took, err := readClock(ctx, s.rdb)
		if err != nil {
			e.note(checkClock, hiddenFact, probeFinding(ctx, err, "P2"))
			return
		}
		if e.clock == nil || o.ErrorMS < e.clock.ErrorMS {
			e.clock = &o
		}
		tooks = append(tooks, took)
	}
	e.note(checkClock, e.clock.String()+" (this machine minus Redis)")
	slices.Sort(tooks)
	median, most := tooks[len(tooks)/2], tooks[len(tooks)-1]
	fact := fmt.Sprintf("%.2f ms, at most %.2f ms in %d calls", milliseconds(median), milliseconds(most), len(tooks))
	const slow = 100 * time.Millisecond
	if median > slow {
		e.note(checkLatency, fact, Finding{Code: "slow", Level: LevelWarning,
			Message: fmt.Sprintf("a call takes %.0f ms: each tick starts so much later, and a call is given up after %v; run replicas nearer to Redis", milliseconds(median), Timeout)})
		return
	}
	e.note(checkLatency, fact)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// probeFinding returns the finding about a probe that failed. If only the time was too short, as on a slow network, the server may be sound, so the
// level is LevelUnknown.
func probeFinding(ctx context.Context, err error, promises ...string) Finding {
	if isLate(ctx, err) {
		return Finding{Code: "no_answer", Level: LevelUnknown, Promises: promises, Message: fmt.Sprintf("a check had no answer within the %v that doctor takes for all checks: %s",
			DiagnosisBound, printableText(err.Error(), mostText))}
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		err = reply // without the random names of the probe
	}
	return Finding{Code: "check_failed", Level: LevelFault, Promises: promises, Message: printableText(err.Error(), mostText)}
}

// isLate reports whether a call failed only because its time was up. The error of a connection may precede the end of its context.
func isLate(ctx context.Context, err error) bool {
	if isReply(err) {
		return false
	}
	var slow net.Error
	return ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout()
}

// A probe does what replicas do, and reports what went wrong.
type probe struct {
	name string
	run  func(context.Context, *Server) (fact string, found []Finding)
}

// runProbes probes the rights first, which shows whether the server takes writes. The other probes run at the same time, because each waits for Redis
// most of the time. refused are warnings about refused writes.
func (s *subject) runProbes(ctx context.Context, e *examination, refused []Finding) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	probes := []probe{{checkTLS, s.probeTLS}, {checkAddresses, s.probeAddresses}}
	if s.tag != "" && e.kind != KindEmbedded {
		fact, found := s.probeRights(ctx, &e.server)
		e.note(checkRights, fact, append(refused, found...)...)
		probes = append([]probe{{checkScripts, s.probeScripts}, {checkMessages, s.probeMessages}, {checkAcks, s.probeAcks}}, probes...)
	}
	facts, found := make([]string, len(probes)), make([][]Finding, len(probes))
	var all sync.WaitGroup
	for i, p := range probes {
		all.Go(func() { facts[i], found[i] = p.run(ctx, &e.server) })
	}
	all.Wait()
	for i, p := range probes {
		e.note(p.name, facts[i], found[i]...)
	}
}

// deleteKey deletes the key of a probe, also after the probe's time limit. If that fails, the key expires.
func (s *subject) deleteKey(ctx context.Context, key string) {
	const patience = 250 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(patience, time.Until(s.cleanUntil)))
	defer cancel()
	_ = s.rdb.Del(ctx, key).Err() // the key expires soon
}

// rightArgs has the arguments for each command of [Rights] that probeRights sends. The key holds a string, so that Redis answers a command for another
// type with WRONGTYPE: the command exists, its user may run it, and nothing changes. Commands without arguments here are tried by other probes.
func rightArgs(key string, db int) map[string][]any {
	return map[string][]any{
		"ping": {}, "time": {}, "info": {"server"}, "select": {db}, "client|setname": {clientName}, "eval_ro": {"", 0}, "evalsha_ro": {noScript, 0},
		"type": {key}, "exists": {key}, "get": {key}, "pttl": {key},
		"hget": {key, "f"}, "hmget": {key, "f"}, "hgetall": {key}, "hlen": {key}, "hvals": {key}, "hexists": {key, "f"},
		"zrange": {key, 0, 0}, "zrevrange": {key, 0, 0}, "zrangebyscore": {key, 0, 0}, "zrangebylex": {key, "-", "+"}, "zscore": {key, "m"},
		"zrank": {key, "m"}, "zcard": {key}, "zcount": {key, 0, 0},
		"wait": {0, 1}, "eval": {"", 0}, "evalsha": {noScript, 0}, "script|load": {""},
		"set": {key, "1", "px", keyTime.Milliseconds()}, "setnx": {key, "1"}, "pexpire": {key, keyTime.Milliseconds()}, "persist": {key + ":none"}, "del": {key + ":none"},
		"hset": {key, "f", "v"}, "hsetnx": {key, "f", "v"}, "hdel": {key, "f"}, "hincrby": {key, "f", 1}, "sadd": {key, "m"}, "smembers": {key},
		"xadd": {key, "*", "f", "v"}, "xrange": {key, "-", "+"}, "zadd": {key, 1, "m"}, "zrem": {key, "m"},
		"zremrangebyscore": {key, 1, 0}, "zremrangebyrank": {key, 1, 0}, "zremrangebylex": {key, "(b", "(a"},
		"multi": {}, "exec": {}, "watch": {key}, "unwatch": {}, "publish": {key, ""}, "spublish": {key, ""},
		"asking": {}, "cluster|slots": {}, "cluster|info": {}, "command": {"count"},
	}
}

// noScript is the SHA-1 of a script that does not exist, so that EVALSHA answers NOSCRIPT if the user may run it.
const noScript = "ffffffffffffffffffffffffffffffffffffffff"

// since7 are the commands that a Redis before version 7 does not have, and that cronclave does not need there.
var since7 = []string{"eval_ro", "evalsha_ro", "spublish", "ssubscribe"}

// probeRights sends each command that the user needs, and reports those that Redis refuses.
func (s *subject) probeRights(ctx context.Context, srv *Server) (fact string, found []Finding) {
	key := s.key()
	err := s.rdb.Set(ctx, key, "1", keyTime).Err()
	if err != nil && !isReply(err) {
		return noAnswer, []Finding{probeFinding(ctx, err, "P5", "P6")}
	}
	if err != nil && !isRefusal(err) {
		if srv.State == ServerUnfit {
			return notTried, nil
		}
		if srv.State == ServerUp {
			srv.State, srv.Fault = ServerReadOnly, "it refuses writes: "+printableText(err.Error(), mostText)
			found = append(found, Finding{Code: refusedCode, Level: LevelFault, Message: "Redis refuses writes: " + printableText(err.Error(), mostText), Promises: []string{"P5", "P6"}})
		}
		return "writes are refused", found
	}
	defer s.deleteKey(ctx, key)
	tried, refused, err := s.tryCommands(ctx, key, err == nil, srv.Version)
	switch {
	case err != nil:
		return noAnswer, []Finding{probeFinding(ctx, err, "P5", "P6")}
	case len(refused) == 0:
		return fmt.Sprintf("all %d commands of user %s", tried, s.rights.User), nil
	}
	level, promises := s.judgeRefused(refused)
	return fmt.Sprintf("%d of %d commands are refused", len(refused), tried), []Finding{{
		Code: "rights", Level: level, Promises: promises, Remedy: s.rights.All(),
		Message: fmt.Sprintf("Redis refuses its user %s, or does not have: %s", s.rights.User, strings.Join(refused, ", ")),
	}}
}

// tryCommands sends the commands of [Rights] in one pipeline, and returns their number and the refused ones. Without a key of the probe, it sends no
// command that could create one of another type.
func (s *subject) tryCommands(ctx context.Context, key string, written bool, version string) (tried int, refused []string, err error) {
	args := rightArgs(key, s.rdb.Options().DB)
	major, known := majorOf(version)
	cmds := map[string]redis.Cmder{}
	var names []string
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for _, name := range s.rights.commands() {
			words, probed := args[name]
			unused := known && major < 7 && slices.Contains(since7, name) || name == "wait" && s.conn.acked == 0
			creates := slices.Contains([]string{"hset", "hsetnx", "hincrby", "sadd", "xadd", "zadd", "setnx"}, name)
			if !probed || unused || creates && !written {
				continue
			}
			line := []any{}
			for word := range strings.SplitSeq(name, "|") {
				line = append(line, word)
			}
			names = append(names, name)
			cmds[name] = p.Do(ctx, append(line, words...)...)
		}
		return nil
	})
	for _, name := range names {
		err := cmds[name].Err()
		switch {
		case isRefusal(err):
			refused = append(refused, strings.ReplaceAll(name, "|", " "))
		case err != nil && !errors.Is(err, redis.Nil) && !isReply(err):
			return len(names), nil, err
		}
	}
	return len(names), refused, nil
}

// judgeRefused returns the level of refused commands, and the promises that need them. Only a user that may not write needs the commands for read-only
// scripts, and only a Cluster has sharded messages. Without messages, no replica observes the grants of others.
func (s *subject) judgeRefused(refused []string) (Level, []string) {
	level := LevelWarning
	promises := []string{}
	for _, name := range refused {
		switch {
		case strings.HasSuffix(name, "_ro"), name == "spublish" && s.rights.Topology != config.Cluster:
		case strings.HasSuffix(name, "publish"):
			level = LevelFault
			promises = append(promises, "P1")
		default:
			return LevelFault, []string{"P5", "P6"}
		}
	}
	return level, slices.Compact(promises)
}

// noAnswer is the fact of a check whose time was up.
const noAnswer = "no answer"

// The facts of checks that were skipped.
const notTried, notNeeded, refusedFact, hiddenFact = "not tried", "not needed", "refused, not needed", "hidden"

// probeScripts lets the script of fences record a token and refuse a smaller one, as it must after a lost lease.
func (s *subject) probeScripts(ctx context.Context, srv *Server) (string, []Finding) {
	if srv.State != ServerUp {
		return notTried, nil
	}
	locks, err := locking.New(locking.Config{Redis: s.rdb, Prefix: s.prefix, Owner: "doctor", Timeout: probeTime})
	if err != nil {
		return "failed", []Finding{probeFinding(ctx, err)}
	}
	defer locks.Close() //nolint:errcheck // it only waits
	defer s.deleteKey(ctx, s.prefix+"{"+s.tag+"}:fence")
	fence := locks.Fence(s.tag, locking.ForgetAfter(keyTime))
	const older, newer = 1, 2
	all := []string{"P1", "P2", "P3", "P4", "P5"}
	if err = fence.Pass(ctx, newer); err == nil {
		err = fence.Pass(ctx, older)
		if errors.Is(err, locking.ErrStale) {
			return "run, and refuse a stale token", nil
		}
		if err == nil {
			return "fail", []Finding{{Code: "scripts", Level: LevelFault, Promises: all, Message: "Redis runs scripts otherwise than Redis 7: a stale token passed a fence"}}
		}
	}
	f := probeFinding(ctx, err, all...)
	if f.Level != LevelFault {
		return noAnswer, []Finding{f}
	}
	f.Code, f.Message = "scripts", "Redis does not run the scripts of cronclave: "+f.Message
	return "fail", []Finding{f}
}

// probeMessages subscribes to a channel of the namespace, and waits for a message of its own. In a Cluster since Redis 7, the channel is sharded.
func (s *subject) probeMessages(ctx context.Context, srv *Server) (string, []Finding) {
	major, known := majorOf(srv.Version)
	sharded := s.rights.Topology == config.Cluster && (!known || major >= 7)
	subscribe, publish, fact := s.rdb.Subscribe, s.rdb.Publish, "arrive"
	if sharded {
		subscribe, publish, fact = s.rdb.SSubscribe, s.rdb.SPublish, "arrive, sharded"
	}
	sub := subscribe(ctx, s.key())
	defer sub.Close() //nolint:errcheck // nothing is under way
	err := receiveOnce(ctx, sub)
	if err == nil {
		err = publish(ctx, s.key(), "probe").Err()
	}
	if err == nil {
		err = receiveOnce(ctx, sub)
	}
	if err == nil {
		return fact, nil
	}
	f := probeFinding(ctx, err, "P1")
	if f.Level != LevelFault {
		return noAnswer, []Finding{f}
	}
	f.Code = "messages"
	f.Message = "messages do not arrive. Replicas do not observe the grants of others, and nobody remembers these if Redis loses its data: " + f.Message
	return "do not arrive", []Finding{f}
}

// receiveOnce waits for the next message, or the confirmation of the subscription, until ctx ends.
func receiveOnce(ctx context.Context, sub *redis.PubSub) error {
	end, _ := ctx.Deadline() // each probe has one
	if _, err := sub.ReceiveTimeout(ctx, time.Until(end)); err != nil {
		return fmt.Errorf("wait for a message: %w", err)
	}
	return nil
}

// probeAcks writes, and counts the Redis replicas that acknowledge the write within [redis].ack_timeout. Without [redis].acked_replicas, replicas do not
// send WAIT, so a server may lack or refuse it.
func (s *subject) probeAcks(ctx context.Context, srv *Server) (string, []Finding) {
	acked := s.conn.acked
	switch {
	case len(srv.copies) == 0 && acked == 0:
		return notNeeded, nil
	case srv.State != ServerUp:
		return notTried, nil
	}
	const usual = 100 * time.Millisecond // the default of ack_timeout
	limit := cmp.Or(s.conn.ackTimeout, usual)
	var got *redis.Cmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, s.key()+":wait", "1", keyTime)
		got = p.Do(ctx, "wait", max(acked, 1), limit.Milliseconds())
		p.Del(ctx, s.key()+":wait")
		return nil
	})
	n, failed := got.Int()
	switch {
	case failed != nil && acked == 0 && isReply(failed):
		return refusedFact, nil
	case (err != nil || failed != nil) && acked == 0:
		return notTried, nil
	case err != nil || failed != nil:
		return "failed", []Finding{probeFinding(ctx, cmp.Or(failed, err), "P5")}
	case n < acked && srv.Replicas != nil && *srv.Replicas >= int64(acked):
		return fmt.Sprintf("%d replicas within %v", n, limit), []Finding{{Code: "not_acknowledged", Level: LevelFault, Promises: []string{"P5"},
			Message: fmt.Sprintf("%d of its own replicas acknowledge a write within %v, and [redis].acked_replicas is %d: nothing is granted or renewed; look at the replication, or raise ack_timeout", n, limit, acked)}}
	default:
		return fmt.Sprintf("%d replicas within %v", n, limit), nil
	}
}

// probeTLS reports the version of TLS, from the newest connection.
func (s *subject) probeTLS(_ context.Context, srv *Server) (string, []Finding) {
	addr := s.rdb.Options().Addr
	if s.rights.Topology == config.Sentinel {
		addr = srv.Address
	}
	_, ours := s.conn.InProcess()
	switch version := s.conn.tlsVersion(); {
	case version != 0:
		return tls.VersionName(version), nil
	case ours || s.rdb.Options().Network == "unix" || isLocal(addr):
		return "none, on this machine", nil
	}
	return "none", []Finding{{Code: "no_tls", Level: LevelWarning,
		Message: "connections are in the clear: everybody on the way can read the password, and change what cronclave reads; use rediss:// or [redis].tls, or a network of their own"}}
}

// probeAddresses connects to the Redis replicas at the addresses that the master announces, because a failover leads there, and compares their clocks.
func (s *subject) probeAddresses(ctx context.Context, srv *Server) (string, []Finding) {
	if !s.mayFail || s.connect == nil || len(srv.copies) == 0 {
		return notNeeded, nil
	}
	found := make([][]Finding, len(srv.copies))
	var all sync.WaitGroup
	for i, addr := range srv.copies {
		all.Go(func() { found[i] = s.probeCopy(ctx, addr) })
	}
	all.Wait()
	return strings.Join(srv.copies, ", "), slices.Concat(found...)
}

// probeCopy checks one Redis replica of the server.
func (s *subject) probeCopy(ctx context.Context, addr string) []Finding {
	rdb := redis.NewClient(singleOptions(config.RedisURL{Addrs: []string{addr}}, s.connect))
	defer rdb.Close() //nolint:errcheck // nothing is under way
	theirs, _, err := readClock(ctx, rdb)
	switch {
	case err != nil && isLate(ctx, err):
		return []Finding{{Code: "address", Level: LevelUnknown, Promises: []string{"P5"},
			Message: fmt.Sprintf("the master announces its replica at %s, which gave this machine no answer within the time of the check; a failover to an address that this machine can't use would stop its work: connect to it from here (%v)", addr, TroubleOf(err).Because(err))}}
	case err != nil:
		return []Finding{{Code: "address", Level: LevelFault, Promises: []string{"P5"},
			Message: fmt.Sprintf("the master announces its replica at %s, where this machine can't use it, so a failover to it would stop this machine's work: %v; set replica-announce-ip and its users (Redis does not replicate them)", addr, TroubleOf(err).Because(err))}}
	}
	ours, _, err := readClock(ctx, s.rdb)
	const margin = 300 // milliseconds: 1 % of the default lease
	if ahead := (ClockOffset{ours.MS - theirs.MS, ours.ErrorMS + theirs.ErrorMS}); err == nil && ahead.Least() > margin {
		return []Finding{{Code: "clocks_differ", Level: LevelFault, Promises: []string{"P1", "P3"},
			Message: fmt.Sprintf("the clock of the replica %s differs from the clock of its master by %v: a failover would be a jump of the clock; synchronize them (NTP)", addr, ahead)}}
	}
	return nil
}
