package cluster

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/integration/harness"
)

const (
	startRounds = 5
	// startSeconds is for how many seconds of ticks a round measures.
	startSeconds = 3
	// startEvery is how often each job is due, in seconds: a replica may fall so far behind before overlap skips a tick.
	startEvery = 4
)

// BenchmarkTickToStart measures how long after its tick a job's process starts, on one replica that has so many ticks due at
// every second, all at once: 1,000 are those of 4,000 jobs, each due every four seconds. Beside it stands a bare exec.Cmd
// for each: at the second this process starts the same program as often, each in a goroutine of its own. Rounds of the
// two alternate; reported are medians of the rounds.
//
// Neither bounds how many start at once, so most of the lateness is the others' turn: on few cores the p99 is what it takes
// to start them all. cpu-s is the processors' work for a second of ticks, the jobs' own included, that of Redis not.
func BenchmarkTickToStart(b *testing.B) {
	programs := buildForStarts(b)
	for _, isolation := range []string{"cgroup v2", "process groups"} {
		for _, rate := range []int{100, 300, 1000} {
			b.Run(fmt.Sprintf("%s/%d", isolation, rate), func(b *testing.B) {
				s := &startBench{b, programs, isolation, rate, redisForStarts(b), ""}
				for b.Loop() {
					s.compare(startRounds, "bare", s.bare, s.ours)
				}
			})
		}
	}
}

var notifiedRounds = flag.Int("notified", 0, "how many rounds BenchmarkNotifiedStarts has with notifications, and as many without")

// BenchmarkNotifiedStarts compares by how much runs begin later while each of them is notified to a webhook that answers 200, 429 and 500, resets connections and
// hangs, in turn. Rounds with and without notifications alternate; reported are medians of the rounds.
func BenchmarkNotifiedStarts(b *testing.B) {
	if *notifiedRounds == 0 {
		b.Skip("-notified says how many rounds there are")
	}
	target := startReceiver(b, "200", "429", "200", "500", "200", "reset", "200", "hang")
	s := &startBench{b, buildForStarts(b), "", 100, redisForStarts(b), ""}
	for b.Loop() {
		s.compare(*notifiedRounds, "quiet", s.ours, func() startRound {
			s.target = target.URL
			defer func() { s.target = "" }()
			return s.ours()
		})
	}
	b.Logf("%d events were sent in %d requests", len(target.names), target.requests)
	if target.requests < *notifiedRounds {
		b.Error("the rounds with notifications had none of them")
	}
}

// startPrograms are the executables of the benchmark, without the race detector.
type startPrograms struct{ cronclave, note string }

func buildForStarts(b *testing.B) startPrograms {
	b.Helper()
	dir := b.TempDir()
	p := startPrograms{filepath.Join(dir, "cronclave"), filepath.Join(dir, "note")}
	for _, args := range [][]string{
		{"go", "build", "-C", harness.Root, "-trimpath", "-ldflags", "-s -w", "-o", p.cronclave, harness.CronclaveProgram},
		{"cc", "-static", "-O2", "-Wall", "-o", p.note, "testdata/note/note.c"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%s (the job is in C: apt-get install gcc libc6-dev): %v\n%s", cmd, err, out)
		}
	}
	return p
}

func redisForStarts(b *testing.B) harness.RedisInstance {
	b.Helper()
	r, err := harness.RealRedis()
	if err != nil {
		b.Fatal(err)
	}
	server, err := harness.Launch(b.Context(), r.Source, []string{"--save", "", "--appendonly", "no"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := server.Remove(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return server
}

// startBench is one way to isolate, at one rate.
type startBench struct {
	*testing.B
	programs  startPrograms
	isolation string // as the replica says at its start; "" means any
	rate      int    // ticks due at each second
	redis     harness.RedisInstance
	target    string // URL that is notified of each run; "" for none
}

// startRound is the result of the ticks of one round.
type startRound struct {
	late []float64 // of each start, in milliseconds, sorted
	lost int       // ticks without a start
	cpu  float64   // seconds, for each second of ticks
	gone int       // wardens that had to be replaced so far: the replica was starved
}

func (r startRound) p50() float64 { return r.after(len(r.late) / 2) }

func (r startRound) p99() float64 { return r.after(len(r.late) * 99 / 100) }

func (r startRound) slowest() float64 { return r.after(len(r.late) - 1) }

// after is how late the nth start was; where there was none, as late as can be.
func (r startRound) after(n int) float64 {
	if len(r.late) == 0 {
		return 1000 * startEvery
	}
	return r.late[n]
}

func (r startRound) String() string {
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, last %.1f ms, %.2f CPU s a second, %d of %d lost, %d wardens replaced", r.p50(), r.p99(),
		r.slowest(), r.cpu, r.lost, r.lost+len(r.late), r.gone)
}

// compare alternates rounds of base and of compared, and reports the medians of both and their ratios.
func (s *startBench) compare(rounds int, name string, base, compared func() startRound) {
	var bases, ours []startRound
	for range rounds {
		bases = append(bases, base())
		ours = append(ours, compared())
		s.Logf("%s, %d a second: %s %v", s.isolation, s.rate, name, bases[len(bases)-1])
		s.Logf("%s, %d a second: ours %v", s.isolation, s.rate, ours[len(ours)-1])
	}
	if slowest := middle(bases, startRound.slowest); slowest >= 1000 {
		s.Logf("this machine can't start %d processes a second: the last of a second starts %.0f ms after it", s.rate, slowest)
	}
	for figure, of := range map[string]func(startRound) float64{"p50-ms": startRound.p50, "p99-ms": startRound.p99,
		"cpu-s": func(r startRound) float64 { return r.cpu }} {
		s.ReportMetric(middle(ours, of), figure)
		s.ReportMetric(middle(bases, of), name+"-"+figure)
		s.ReportMetric(middle(ours, of)/middle(bases, of), strings.TrimSuffix(strings.TrimSuffix(figure, "-ms"), "-s")+"-ratio")
	}
	s.ReportMetric(middle(ours, func(r startRound) float64 { return float64(r.lost) }), "lost")
	s.ReportMetric(middle(ours, func(r startRound) float64 { return float64(r.gone) }), "wardens-replaced")
}

// middle is the median.
func middle(rounds []startRound, of func(startRound) float64) float64 {
	var all []float64
	for _, r := range rounds {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// bare starts the processes itself.
func (s *startBench) bare() startRound {
	notes := s.notes()
	first := time.Now().Add(time.Second).Truncate(time.Second)
	before := ownWork(s)
	var all sync.WaitGroup
	for second := range startSeconds {
		at := first.Add(time.Duration(second) * time.Second)
		<-time.After(time.Until(at))
		for n := range s.rate {
			all.Go(func() {
				cmd := exec.Command(s.programs.note)
				cmd.Env = append(os.Environ(), "NOTE_FILE="+notes, fmt.Sprintf("CRONCLAVE_JOB=job-%d", n), fmt.Sprintf("CRONCLAVE_TICK_UNIX=%d", at.Unix()))
				if err := cmd.Run(); err != nil {
					s.Error(err)
				}
			})
		}
	}
	all.Wait()
	return s.judge(notes, first, ownWork(s)-before)
}

// ours lets a replica start them. It counts from when every job was due once, by which time locks and schedules are known.
func (s *startBench) ours() startRound {
	notes := s.notes()
	r := s.startReplica(notes)
	defer r.end()
	s.await("a start of every job", func() bool { return countLines(s, notes) >= s.rate*startEvery })
	first := time.Now().Add(2 * time.Second).Truncate(time.Second)
	<-time.After(time.Until(first) - 200*time.Millisecond)
	before := r.work()
	<-time.After(startSeconds * time.Second)
	cpu := r.work() - before
	last := first.Add((startSeconds + startEvery) * time.Second) // a job that has not started when it is due once more is lost
	s.await("end of the round", func() bool {
		return time.Now().After(last) || len(s.judge(notes, first, 0).late) == startSeconds*s.rate
	})
	round := s.judge(notes, first, cpu)
	round.gone = r.wardensReplaced()
	if round.lost > 0 && round.gone == 0 && round.slowest() < 1000 {
		s.Errorf("the replica kept up, and yet %v", round)
	}
	return round
}

// notes makes an empty file for the processes to write to.
func (s *startBench) notes() string {
	path := filepath.Join(s.TempDir(), "notes")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// judge reads what the processes of the round's ticks have written. A tick that started twice fails the benchmark.
func (s *startBench) judge(notes string, first time.Time, cpu float64) startRound {
	text, err := os.ReadFile(notes)
	if err != nil {
		s.Fatal(err)
	}
	round := startRound{cpu: cpu / startSeconds}
	seen := map[string]bool{}
	for line := range bytes.Lines(text) {
		var at, tick int64
		var job string
		if _, err := fmt.Sscanf(string(line), "%d %d %s\n", &at, &tick, &job); err != nil {
			s.Fatalf("%q: %v", line, err)
		}
		if tick < first.Unix() || tick >= first.Unix()+startSeconds {
			continue
		}
		if key := fmt.Sprint(job, " ", tick); seen[key] {
			s.Errorf("tick %d of %s started twice", tick, job)
		} else {
			seen[key] = true
			round.late = append(round.late, float64(at-tick*int64(time.Second))/1e6)
		}
	}
	slices.Sort(round.late)
	round.lost = startSeconds*s.rate - len(round.late)
	return round
}

func (s *startBench) await(what string, holds func() bool) {
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	if !harness.Poll(ctx, holds) {
		s.Fatalf("no %s within a minute", what)
	}
}

func countLines(s *startBench, path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// ownWork is how long this process and those that it has waited for have worked, in seconds.
func ownWork(s *startBench) (sum float64) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		if err := unix.Getrusage(who, &usage); err != nil {
			s.Fatal(err)
		}
		sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	}
	return sum
}

// startedReplica is a replica whose log goes to a file.
type startedReplica struct {
	bench  *startBench
	cmd    *exec.Cmd
	log    string
	warden int
}

// harness.StartReplica starts one. Where process groups are wanted it does not see the cgroups of the machine.
func (s *startBench) startReplica(notes string) *startedReplica {
	r := &startedReplica{bench: s, log: filepath.Join(filepath.Dir(notes), "log")}
	args := []string{s.programs.cronclave, "run", "--config", s.config(notes), "--replica", "r1", "--log-format", "json"}
	attr := &syscall.SysProcAttr{}
	if s.isolation == "process groups" {
		if os.Geteuid() != 0 {
			s.Skip("only root may hide the cgroups of the machine from a replica")
		}
		args = append([]string{"/bin/sh", "-c", `umount -a -t cgroup2 && exec "$0" "$@"`}, args...)
		attr.Unshareflags = unix.CLONE_NEWNS
	}
	r.cmd = exec.Command(args[0], args[1:]...)
	r.cmd.Env, r.cmd.SysProcAttr = append(harness.CleanEnv(), "CRONCLAVE_REDIS=redis://"+s.redis.Addr()+"/0"), attr
	harness.DieWithUs(r.cmd)
	log, err := os.Create(r.log)
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close() // the replica has its own
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	r.announced()
	return r
}

// config writes the jobs, of which as many are due at each second. The locks of an empty Redis are closed for one lease.
func (s *startBench) config(notes string) string {
	var text strings.Builder
	defaults := "[defaults]\n"
	if s.target != "" {
		defaults = fmt.Sprintf("[notify.ops]\nkind = \"webhook\"\nurl = %q\ntimeout = \"2s\"\ngroup_wait = \"1s\"\non = [\"ok\"]\n\n[defaults]\nnotify = [\"ops\"]\n", s.target)
	}
	fmt.Fprintf(&text, "[replica]\nmax_running = %d\n\n%slease = \"10s\"\n\n[defaults.env]\nNOTE_FILE = %q\n", startEvery*s.rate, defaults, notes)
	for n := range startEvery * s.rate {
		fmt.Fprintf(&text, "\n[jobs.job-%d]\nschedule = \"%d/%d * * * * *\"\ncommand = [%q]\n", n, n%startEvery, startEvery, s.programs.note)
	}
	path := filepath.Join(filepath.Dir(notes), "jobs.toml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// announced waits for the first line of the log, and leaves the benchmark where the machine isolates in another way.
func (r *startedReplica) announced() {
	parse := func() (e harness.LogEntry) {
		text, err := os.ReadFile(r.log)
		if err != nil {
			r.bench.Fatal(err)
		}
		for _, e := range harness.LogEntries(strings.Split(string(text), "\n")) {
			if harness.Announced(e) {
				return e
			}
		}
		return nil
	}
	r.bench.await("announcement", func() bool { return parse() != nil })
	e := parse()
	if _, err := fmt.Sscanf(fmt.Sprint(e["warden"]), "process %d", &r.warden); err != nil {
		r.bench.Fatal(err)
	}
	if said := fmt.Sprint(e["isolation"]); !strings.HasPrefix(said, r.bench.isolation) {
		r.end()
		r.bench.Skipf("the replica isolates by %s", said)
	}
}

// work is how long the replica, its warden and the jobs that were waited for have worked, in seconds.
func (r *startedReplica) work() float64 {
	const userTime, clockTicks = 11, 100 // of proc(5): utime, stime, cutime, cstime, in hundredths of a second
	var sum int
	for _, pid := range []int{r.cmd.Process.Pid, r.warden} {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil { // a warden that was replaced
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		for _, field := range fields[userTime : userTime+4] {
			n, err := strconv.Atoi(string(field))
			if err != nil {
				r.bench.Fatal(err)
			}
			sum += n
		}
	}
	return float64(sum) / clockTicks
}

// wardensReplaced counts the replaced wardens in the log.
func (r *startedReplica) wardensReplaced() int {
	text, err := os.ReadFile(r.log)
	if err != nil {
		r.bench.Fatal(err)
	}
	return bytes.Count(text, []byte("warden replaced"))
}

// end drains the replica.
func (r *startedReplica) end() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may be over, as Wait shows
	if err := r.cmd.Wait(); err != nil {
		text, _ := os.ReadFile(r.log)
		r.bench.Errorf("the replica: %v\n%s", err, text[max(0, len(text)-4096):])
	}
}
