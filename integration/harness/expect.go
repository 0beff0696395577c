package harness

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ForgetHistory deletes the history, which only people read.
func (c *Cluster) ForgetHistory(t *testing.T) {
	t.Helper()
	keys := c.Client.Scan(t.Context(), 0, "cronclave:"+c.Namespace+":*", 1000).Iterator()
	n := 0
	for keys.Next(t.Context()) {
		if key := keys.Val(); strings.HasSuffix(key, ":records") || strings.HasSuffix(key, ":history") {
			n++
			if err := c.Client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n == 0 {
		t.Error("there was no history")
	}
}

// CheckChain demands that a job has run once for each tick that the job before it has ended well, after that, and for
// no other tick. Where sure is false for an end, the job may have run for it. told has the ticks in the history: a
// run that was killed may not have begun. The first tick may be no tick of the job: its schedule is announced after that
// of the job before it, and a replica may start just before a tick.
func CheckChain(t *testing.T, before, after []Line, sure func(end Line) bool, told map[int64]bool) {
	t.Helper()
	ended, ran := map[int64]Line{}, map[int64]bool{}
	for _, l := range LinesOf("end", before) {
		ended[l.Tick] = l
	}
	runs := Starts(after)
	CheckOnce(t, runs, 1)
	for _, l := range runs {
		end, ok := ended[l.Tick]
		if !ok || l.Micros < end.Micros || l.Tick%6 == 0 {
			t.Errorf("%v ran, though the tick had not ended well before: %v", l, end)
		}
		ran[l.Tick] = true
	}
	n := 0
	for tick, end := range ended {
		if tick%6 == 0 || !sure(end) {
			continue
		}
		n++
		if !ran[tick] && !told[tick] && tick != before[0].Tick {
			t.Errorf("nothing ran after %v", end)
		}
	}
	if n < 3 {
		t.Errorf("only %d ticks of %d have been compared", n, len(ended))
	}
}

func OutcomesOf(history []PastRun) map[int64][]PastRun {
	outcomes := map[int64][]PastRun{}
	for _, r := range history {
		outcomes[r.Tick.Unix()] = append(outcomes[r.Tick.Unix()], r)
	}
	return outcomes
}

// Lateness sums up how long after its tick a run began, by the clock of Redis.
func Lateness(runs []Line) string {
	var late []time.Duration
	for _, l := range runs {
		late = append(late, l.At().Sub(time.Unix(l.Tick, 0)))
	}
	slices.Sort(late)
	at := func(part float64) time.Duration { return late[int(part*float64(len(late)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("%d, median %v, p99 %v, most %v", len(late), at(0.5), at(0.99), at(1))
}

// NewRandom draws lots by a seed that it logs; CRONCLAVE_TEST_SEED repeats those of an earlier run.
func NewRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("CRONCLAVE_TEST_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatal("CRONCLAVE_TEST_SEED:", err)
	}
	t.Logf("CRONCLAVE_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Published are the keys of the configurations that replicas have published.
func (c *Cluster) Published(t *testing.T) (keys []string) {
	t.Helper()
	for _, kind := range []string{"digests", "settings"} {
		found := Must1(c.Client.Keys(t.Context(), "cronclave:"+c.Namespace+":"+kind+":*").Result())(t)
		if len(found) != 1 {
			t.Fatalf("%s: %q", kind, found)
		}
		keys = append(keys, found...)
	}
	return keys
}

// WantPace demands that a job ran throughout, as often as its runs allowed: on a slow machine they take longer than a second.
func (c *Cluster) WantPace(t *testing.T, job string, first, last int64) {
	t.Helper()
	before := first
	for _, l := range Starts(c.Lines(t, job)) {
		if l.Tick > last {
			break
		}
		if l.Tick-before > 8 {
			t.Errorf("job %s did not run from tick %d to %d", job, before, l.Tick)
		}
		before = max(before, l.Tick)
	}
}

// WantTriesApart demands that a run that was good at its third try says so everywhere, and that its tries are no outcomes.
func (c *Cluster) WantTriesApart(t *testing.T, good PastRun, replicas []*Replica) {
	t.Helper()
	if good.Attempt != 3 || good.FailedTries != 2 || good.Retried {
		t.Errorf("the history has %+v", good)
	}
	for _, r := range c.History(t, "moody") {
		if r.Outcome == "failed" && !r.Retried {
			t.Errorf("a try counts as a run: %+v", r)
		}
	}
	c.Command(t, "history", "moody").Want(t, 0, "(after 2 failed tries)")
	c.Command(t, "history", "moody").Want(t, 0, "exit code 1 (tried again)")
	var pages strings.Builder
	Eventually(t, Soon, "failed tries in the metrics", func() bool {
		pages.Reset()
		for _, r := range replicas {
			_, page := GetPage(t, r.MetricsURL(t), "")
			pages.WriteString(page)
		}
		return regexp.MustCompile(`cronclave_tries_failed_total\{job_name="moody"\} [1-9]`).MatchString(pages.String())
	})
	if regexp.MustCompile(`cronclave_outcomes_total\{job_name="moody",outcome="failed"\} [1-9]`).MatchString(pages.String()) {
		t.Error("failed tries are counted as outcomes")
	}
	Eventually(t, Soon, "status of a run that is over", func() bool {
		return strings.Contains(c.Command(t, "status").Stdout, ", tried 3x")
	})
}

// WantProblems waits until status puts the lost replica first, and then the jobs that fail. A tick that a busy machine misses takes the place of a failure
// until the next one.
func (c *Cluster) WantProblems(t *testing.T, lost string) {
	t.Helper()
	Eventually(t, StartTimeout, "problems in status --json", func() bool {
		found := map[string]bool{}
		for _, p := range c.Status(t).Problems {
			found[p.Level+" "+p.Code+" "+p.Job+p.Replica] = p.Since != nil
		}
		return found["error job_failed bad"] && found["error job_failed late"] && found["warning replica_lost "+lost]
	})
	Eventually(t, StartTimeout, "problems in the text of status --check", func() bool {
		shown := c.Command(t, "status", "--check")
		for _, want := range []string{"\n✗ job bad failed on ", "\n✗ job late timeout on ", "\n\n! the registration of replica " + lost + " expired", "\n" + lost + " +lost +"} {
			if !regexp.MustCompile(want).MatchString(shown.Stdout) {
				return false
			}
		}
		return shown.Code == 1
	})
	Eventually(t, StartTimeout, "the jobs that failed, and no other", func() bool {
		only := c.Command(t, "status", "--failed").Stdout
		return strings.Contains(only, "\nbad ") && !strings.Contains(only, "\nmoody ")
	})
	c.Command(t, "status", "moody", "--zone", "Asia/Tokyo").Want(t, 0, " JST ")
}

// WantTicksInTime demands that ten ticks of the talkative cluster run once and soon after they were due, and the runs of its slower jobs one by one.
func (c *Cluster) WantTicksInTime(t *testing.T) {
	t.Helper()
	const ticks = 10
	first := c.AwaitTick(t, StartTimeout, "tick", 0).Tick
	c.AwaitTick(t, StartTimeout, "talk", first+1)
	c.AwaitTick(t, StartTimeout, "long", first+6) // the first one has been renewed
	c.AwaitTick(t, StartTimeout, "tick", first+ticks)
	for tick := first; tick <= first+ticks; tick++ {
		run := c.Await(t, Soon, "tick", fmt.Sprintf("run of tick %d itself", tick), func(l Line) bool { return l.Event == "start" && l.Tick == tick })
		if late := run.At().Sub(time.Unix(tick, 0)); late > Slack {
			t.Errorf("late by %v: %v", late, run)
		}
	}
	lines := c.Lines(t, "")
	CheckOnce(t, Starts(lines), 1)
	CheckNotEarly(t, Starts(lines))
	slower := slices.DeleteFunc(lines, func(l Line) bool { return l.Job == "tick" }) // of which runs may be beside each other
	c.CheckTokensGrow(t, Starts(slower))
	CheckAlone(t, slower)
}

// WantEndAtSecondSignal demands that the second signal ends the replica and its job, once something hangs.
func (c *Cluster) WantEndAtSecondSignal(t *testing.T, r *Replica, hang func()) {
	t.Helper()
	const within = 4 * time.Second // a second is promised; calls to Redis that time out one after the other take longer than these
	first := c.AwaitTick(t, Soon, "stubborn", 0)
	c.Await(t, Soon, "stubborn", "child", func(l Line) bool { return l.PID != first.PID })
	hang()
	r.Term(t)
	asked := time.Now()
	Eventually(t, Soon, "time between the signals", func() bool { return time.Since(asked) > 2*time.Second })
	if r.Ended() {
		t.Fatalf("the first signal ended it:\n%s", strings.Join(r.Log(), "\n"))
	}
	asked = time.Now()
	r.Term(t)
	r.Wait(t, Soon)
	took := time.Since(asked)
	if took > within {
		t.Errorf("the second signal took %v, want a second", took)
	}
	Eventually(t, Slack, "end of the job", func() bool {
		return !slices.ContainsFunc(c.Lines(t, ""), func(l Line) bool { s := ProcessState(l.PID); return s != "" && s != "Z" })
	})
	t.Logf("the replica ended %v after the second signal", took.Round(time.Millisecond))
}

// PausedAt is since when a job is paused, by status; 0 if it is not.
func (c *Cluster) PausedAt(t *testing.T, job, reason string) int64 {
	t.Helper()
	for _, j := range c.Status(t).Jobs {
		if j.Name != job || !j.Paused {
			continue
		}
		if j.PausedReason != reason || j.PausedUntil != nil {
			t.Errorf("%+v", j)
		}
		return j.PausedSince.UnixMicro()
	}
	return 0
}

// CheckPaused demands that no tick after an instant and before another one ran, and that each that came due after known was skipped, once.
func (c *Cluster) CheckPaused(t *testing.T, since, known, until int64) {
	t.Helper()
	for _, l := range Starts(c.Lines(t, "stopped")) {
		if at := l.Tick * 1e6; at > since && at < until {
			t.Errorf("a run of paused time: %v", l)
		}
	}
	outcomes := OutcomesOf(c.History(t, "stopped"))
	for tick := known/1e6 + 1; tick*1e6 < until; tick++ {
		if past := outcomes[tick]; len(past) != 1 || past[0].Verdict() != "skipped paused" {
			t.Errorf("tick %d, %v after the pause: %+v", tick, time.Duration(tick*1e6-since)*time.Microsecond, past)
		}
	}
}

// Insist repeats a command while its outcome is unknown, as it asks people to: with three masters of five left,
// claims may be in its way.
func (c *Cluster) Insist(t *testing.T, args ...string) (last CommandLine) {
	t.Helper()
	const unavailable = 69
	Eventually(t, StartTimeout, "answer to "+args[0], func() bool {
		last = c.Command(t, args...)
		return last.Code != unavailable
	})
	return last
}

// InPool has the lines of all runs as if they were of one job, since a pool treats them so.
func InPool(lines []Line) []Line {
	all := slices.Clone(lines)
	for i := range all {
		all[i].Job = "pool"
	}
	return all
}

// CheckOutcomesOfPool demands that each tick of a job every two seconds has one outcome, which is that of a run, or for want of the pool.
func (c *Cluster) CheckOutcomesOfPool(t *testing.T, job string, from, to int64) {
	t.Helper()
	told := map[int64][]string{}
	for _, r := range c.History(t, job) {
		told[r.Tick.Unix()] = append(told[r.Tick.Unix()], r.Verdict())
	}
	for tick := from; tick < to; tick += 2 {
		if len(told[tick]) != 1 || !slices.Contains([]string{"ok", "missed pool", "skipped overlap"}, told[tick][0]) {
			t.Errorf("job %s, tick %d: %q", job, tick, told[tick])
		}
	}
}

// InLine is how many wait for the pool.
func (c *Cluster) InLine(t *testing.T) int {
	t.Helper()
	n, err := c.Client.ZCard(t.Context(), fmt.Sprintf("cronclave:%s:{warehouse}:pool:queue", c.Namespace)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// WantRecovered waits for the second attempt of a tick, which must be ok, and checks that it was made once, elsewhere, with a greater token, and
// when nothing was left of the first.
func (c *Cluster) WantRecovered(t *testing.T, first Line, died string) (second Line) {
	t.Helper()
	second = c.Await(t, Soon, "long", "second attempt", func(l Line) bool { return l.Event == "start" && l.Attempt == 2 })
	if second.Key() != first.Key() || second.Replica == first.Replica || second.Token <= first.Token || second.RunID == first.RunID {
		t.Errorf("not the same tick elsewhere with a greater token:\n%s", TextOf([]Line{first, second}))
	}
	c.AwaitRun(t, Soon, "long", "end of the second attempt", func(r PastRun) bool { return r.RunID == second.RunID && r.Outcome != "running" })
	var told []string
	for _, r := range c.History(t, "long") {
		if r.Tick.Unix() == first.Tick {
			told = append(told, fmt.Sprint(r.Attempt, " ", r.Trigger, " ", r.Verdict()))
		}
	}
	slices.Sort(told)
	if want := []string{"1 schedule " + died, "2 recovery ok"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	var lines []Line
	for _, l := range c.Lines(t, "long") {
		if l.Key() == first.Key() {
			lines = append(lines, l)
		}
	}
	if starts := LinesOf("start", lines); len(starts) != 2 {
		t.Errorf("%d starts, want 2:\n%s", len(starts), TextOf(starts))
	}
	CheckAttempts(t, lines, c.History(t, "long"))
	CheckAlone(t, lines)
	return second
}

// CheckEachTickOnce demands of a job of each second what CheckTicks does, for all ticks that ran or have an outcome, and those between them.
func (c *Cluster) CheckEachTickOnce(t *testing.T, job string) {
	t.Helper()
	runs, history := Starts(c.Lines(t, job)), c.History(t, job)
	first, last := runs[0].Tick, runs[0].Tick
	for _, l := range runs {
		first, last = min(first, l.Tick), max(last, l.Tick)
	}
	for _, r := range history {
		first, last = min(first, r.Tick.Unix()), max(last, r.Tick.Unix())
	}
	checkTicks(t, job, runs, history, first, last, 1)
}

// CheckTicks demands that each tick of a period in seconds ran once, ended ok at its first attempt, and has no other outcome. A tick is skipped only if an
// earlier run was under way, which happens if the machine stands still. Two thirds of all ticks run.
func (c *Cluster) CheckTicks(t *testing.T, job string, first, last, period int64) {
	t.Helper()
	checkTicks(t, job, Starts(c.Lines(t, job)), c.History(t, job), first, last, period)
}

func checkTicks(t *testing.T, job string, runs []Line, history []PastRun, first, last, period int64) {
	t.Helper()
	CheckOnce(t, runs, 1)
	outcomes := OutcomesOf(history)
	ok := int64(0)
	for tick := first; tick <= last; tick += period {
		o, ran, want := outcomes[tick], slices.ContainsFunc(runs, func(l Line) bool { return l.Tick == tick }), "ok"
		if !ran && underWay(history, tick) {
			want = "skipped overlap"
		}
		if len(o) != 1 || o[0].Attempt > 1 || o[0].Verdict() != want || !ran && want == "ok" {
			t.Errorf("%s, tick %d: ran %v, want %q: %+v", job, tick, ran, want, o)
		} else if ran {
			ok++
		}
	}
	if due := (last-first)/period + 1; ok < due*2/3 {
		t.Errorf("%s: only %d of %d ticks ran", job, ok, due)
	}
}

// underWay reports whether the run of an earlier tick held its slot at the instant of a tick. The slot is free a moment after the end of the run.
func underWay(history []PastRun, tick int64) bool {
	const release = 500 * time.Millisecond
	at := time.Unix(tick, 0)
	return slices.ContainsFunc(history, func(r PastRun) bool {
		return r.Tick.Before(at) && !r.Started.IsZero() && r.Started.Before(at) && r.Finished.After(at.Add(-release))
	})
}

// AwaitScreen waits until the text of status matches.
func (c *Cluster) AwaitScreen(t *testing.T, within time.Duration, what, pattern string) {
	t.Helper()
	match := regexp.MustCompile("(?m)" + pattern)
	Eventually(t, within, what+" in the text of status", func() bool { return match.MatchString(c.Command(t, "status", "-o", "wide").Stdout) })
}

// AwaitPage waits until a page that a replica serves matches.
func (r *Replica) AwaitPage(t *testing.T, within time.Duration, path, what, pattern string) {
	t.Helper()
	url, match := r.ApiURL(t)+path, regexp.MustCompile(pattern)
	Eventually(t, within, what+" on the page "+path, func() bool {
		code, page := AskAPI(t, "GET", url, "", "")
		return code == http.StatusOK && match.MatchString(page)
	})
}

// OneJob is enough for tests of the time before anything runs.
const OneJob = `
[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
`

// Warnings of status with a code.
func (c *Cluster) Warnings(t *testing.T, code string) (messages []string) {
	t.Helper()
	for _, w := range c.Status(t).Warnings {
		if w.Code == code {
			messages = append(messages, w.Message)
		}
	}
	return messages
}

// WantSettings demands that the settings of both jobs are shown, with the replicas of each form, and that neither Redis nor a reader gets the token or an
// argument.
func (c *Cluster) WantSettings(t *testing.T, token string) {
	t.Helper()
	var st ClusterStatus
	shown := c.Command(t, "status", "edited", "--json")
	shown.Decode(t, &st)
	s := st.Settings
	if s == nil || s.Agreement != "differ" || !slices.Equal(s.Differing, []string{"schedule"}) || len(s.Forms) != 2 || len(s.Forms[0].Settings) < 40 ||
		!slices.Equal(s.Forms[0].Replicas, []string{"new"}) || s.Forms[0].Settings[0].Value != `"@hourly"` || s.Forms[1].Settings[0].Value != `"@daily"` {
		t.Errorf("%+v", s)
	}
	text := c.Command(t, "status", "same")
	text.Want(t, 0, "configuration: the same on new, old")
	text.Want(t, 0, "TOKEN from the environment")
	c.Command(t, "status", "edited").Want(t, 0, "! schedule          new: \"@hourly\"\n                    old: \"@daily\"\n")
	hashes := 0
	for keys := c.Client.Scan(t.Context(), 0, "cronclave:"+c.Namespace+":*", 1000).Iterator(); keys.Next(t.Context()); {
		if strings.Contains(keys.Val(), ":settings:") {
			hashes++
		}
		content := c.contentOf(t, keys.Val())
		for _, secret := range []string{token, "an-argument-of-same"} {
			if strings.Contains(content, secret) {
				t.Errorf("Redis has %s in %s", secret, keys.Val())
			}
		}
	}
	for _, secret := range []string{token, "an-argument-of-same"} {
		if strings.Contains(shown.Stdout+text.Stdout, secret) {
			t.Errorf("%s is shown", secret)
		}
	}
	if hashes != 2 {
		t.Errorf("settings of %d configurations are kept", hashes)
	}
}

// contentOf is what a key has, as text.
func (c *Cluster) contentOf(t *testing.T, key string) string {
	t.Helper()
	switch Must1(c.Client.Type(t.Context(), key).Result())(t) {
	case "string":
		return c.Client.Get(t.Context(), key).Val() // it may have expired
	case "hash":
		return fmt.Sprint(Must1(c.Client.HGetAll(t.Context(), key).Result())(t))
	case "zset":
		return fmt.Sprint(Must1(c.Client.ZRange(t.Context(), key, 0, -1).Result())(t))
	case "list":
		return fmt.Sprint(Must1(c.Client.LRange(t.Context(), key, 0, -1).Result())(t))
	}
	return ""
}
