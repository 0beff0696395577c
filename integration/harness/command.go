package harness

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// QuickExit keeps a program that was built with the race detector from pausing for a second at its end.
const QuickExit = "GORACE=atexit_sleep_ms=0"

// CommandLine is one call of cronclave that has ended.
type CommandLine struct {
	args           []string
	Stdout, Stderr string
	Code           int
}

// RunCommand runs cronclave to its end.
func RunCommand(t *testing.T, env []string, args ...string) CommandLine {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Program(t, CronclaveProgram), args...)
	cmd.Env = append(append(CleanEnv(), QuickExit), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 2 * time.Second
	DieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is checked instead
	c := CommandLine{args, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if strings.Contains(c.Stderr, "WARNING: DATA RACE") {
		t.Errorf("cronclave %s has a data race:\n%s", strings.Join(args, " "), c.Stderr)
	}
	return c
}

// Want demands an exit code, and a text on stdout or stderr.
func (c CommandLine) Want(t *testing.T, code int, said string) {
	t.Helper()
	if c.Code != code || !strings.Contains(c.Stdout+c.Stderr, said) {
		t.Errorf("cronclave %s: exit code %d, want %d and %q in\n%s%s", strings.Join(c.args, " "), c.Code, code, said, c.Stdout, c.Stderr)
	}
}

// Decode reads the JSON that the command printed, which has no field that the test does not know.
func (c CommandLine) Decode(t *testing.T, to any) {
	t.Helper()
	c.Want(t, 0, "")
	d := json.NewDecoder(strings.NewReader(c.Stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatalf("cronclave %s: %v in\n%s", strings.Join(c.args, " "), err, c.Stdout)
	}
}

// PastRun is an element of history --json.
type PastRun struct {
	RunID      string    `json:"run_id"`
	Job        string    `json:"job"`
	Tick       time.Time `json:"tick"`
	TickLocal  string    `json:"tick_local"`
	Trigger    string    `json:"trigger"`
	Slot       *int      `json:"slot"`
	Attempt    int       `json:"attempt"`
	Token      int64     `json:"token"`
	Replica    string    `json:"replica"`
	Outcome    string    `json:"outcome"`
	Reason     string    `json:"reason"`
	Detail     string    `json:"detail"`
	ExitCode   *int      `json:"exit_code"`
	Signal     string    `json:"signal"`
	Started    time.Time `json:"started"`
	Finished   time.Time `json:"finished"`
	DurationMS *int64    `json:"duration_ms"`
	Output     *string   `json:"output"`
	OutputCut  int64     `json:"output_cut"`

	Retried     bool `json:"retried"`
	FailedTries int  `json:"failed_tries"`
}

// Verdict is the outcome with its reason, as in "skipped overlap".
func (r PastRun) Verdict() string { return strings.TrimSpace(r.Outcome + " " + r.Reason) }

// RedisHealth is a server of Redis in a status.
type RedisHealth struct {
	Address     string   `json:"address"`
	Keeps       string   `json:"keeps"`
	State       string   `json:"state"`
	Fault       string   `json:"fault"`
	Version     string   `json:"version"`
	Persistence string   `json:"persistence"`
	UptimeS     *int64   `json:"uptime_s"`
	RoundTripMS *float64 `json:"round_trip_ms"`
	MemoryUsed  *int64   `json:"memory_used"`
	MemoryLimit *int64   `json:"memory_limit"`
	Clients     *int64   `json:"clients"`
	Replicas    *int64   `json:"replicas"`
}

// ClusterStatus is the output of status --json.
type ClusterStatus struct {
	Namespace string    `json:"namespace"`
	Now       time.Time `json:"now"`
	Leader    *struct {
		Replica string `json:"replica"`
		Token   int64  `json:"token"`
	} `json:"leader"`
	Replicas []struct {
		Name          string    `json:"name"`
		Version       string    `json:"version"`
		Started       time.Time `json:"started"`
		Seen          time.Time `json:"seen"`
		ConfigDigest  string    `json:"config_digest"`
		ClockOffsetMS int64     `json:"clock_offset_ms"`
		ClockErrorMS  int64     `json:"clock_error_ms"`
		Running       int       `json:"running"`
		MaxRunning    int       `json:"max_running"`
		LeaseMargin   *struct {
			Of      string `json:"of"`
			LeftMS  int64  `json:"left_ms"`
			LeaseMS int64  `json:"lease_ms"`
		} `json:"lease_margin"`
		Unable     string    `json:"unable"`
		ZoneData   string    `json:"zone_data"`
		State      string    `json:"state"`
		StoodStill *interval `json:"stood_still"`
	} `json:"replicas"`
	Lost []struct {
		Name string    `json:"name"`
		Seen time.Time `json:"seen"`
	} `json:"lost"`
	Redis struct {
		Kind        string        `json:"kind"`
		Servers     []RedisHealth `json:"servers"`
		ServerCount int           `json:"server_count"`
		Limits      []string      `json:"limits"`
	} `json:"redis"`
	Problems    []Problem  `json:"problems"`
	DataLost    *interval  `json:"data_lost"`
	ClosedUntil *time.Time `json:"locks_closed_until"`
	Incidents   []struct {
		Kind    string    `json:"kind"`
		From    time.Time `json:"from"`
		To      time.Time `json:"to"`
		Replica string    `json:"replica"`
	} `json:"incidents"`
	JobCount int         `json:"job_count"`
	Expected int         `json:"expected_replicas"`
	Pools    []lockState `json:"pools"`
	Locks    []lockState `json:"locks"`
	Jobs     []struct {
		Name     string     `json:"name"`
		Schedule []string   `json:"schedule"`
		After    []string   `json:"after"`
		Timezone string     `json:"timezone"`
		Enabled  bool       `json:"enabled"`
		Paused   bool       `json:"paused"`
		LastEnd  *PastRun   `json:"last_end"`
		Recent   []PastRun  `json:"recent"`
		Failures *streak    `json:"failures"`
		Last     *PastRun   `json:"last"`
		Next     *time.Time `json:"next"`
		Holders  []struct {
			Replica string     `json:"replica"`
			RunID   string     `json:"run_id"`
			Slot    int        `json:"slot"`
			Token   int64      `json:"token"`
			Tick    *time.Time `json:"tick"`
			Expires time.Time  `json:"expires"`
		} `json:"holders"`
		Parallel     int               `json:"parallel"`
		JitterMS     int64             `json:"jitter_ms"`
		UsualMS      int64             `json:"usual_ms"`
		Conditions   json.RawMessage   `json:"conditions"`
		Pool         string            `json:"pool"`
		Tags         []string          `json:"tags"`
		Where        map[string]string `json:"where"`
		PausedSince  *time.Time        `json:"paused_since"`
		PausedUntil  *time.Time        `json:"paused_until"`
		PausedReason string            `json:"paused_reason"`
		PausedBy     string            `json:"paused_by"`
	} `json:"jobs"`
	Settings *struct {
		Job       string   `json:"job"`
		Agreement string   `json:"agreement"`
		Differing []string `json:"differing"`
		More      int      `json:"more"`
		Fault     string   `json:"fault"`
		Forms     []struct {
			State    string   `json:"state"`
			Digest   string   `json:"digest"`
			Replicas []string `json:"replicas"`
			Settings []struct {
				Key   string `json:"key"`
				Value string `json:"value"`
			} `json:"settings"`
		} `json:"forms"`
	} `json:"settings"`
	Warnings []struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"warnings"`
}

// interval is between two instants.
type interval struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// lockState is an element of pools, which have jobs, or of locks in status --json.
type lockState struct {
	Name    string     `json:"name"`
	Slots   int        `json:"slots"`
	Holders []lockUser `json:"holders"`
	Waiters int        `json:"waiters"`
	Waiting []lockUser `json:"waiting"`
	Jobs    []string   `json:"jobs"`
}

// lockUser holds a slot, or waits for one.
type lockUser struct {
	Owner   string     `json:"owner"`
	Job     string     `json:"job"`
	RunID   string     `json:"run_id"`
	Slot    int        `json:"slot"`
	Token   int64      `json:"token"`
	Since   *time.Time `json:"since"`
	Expires time.Time  `json:"expires"`
}

// Problem is an element of problems in status --json.
type Problem struct {
	Code    string     `json:"code"`
	Job     string     `json:"job"`
	Replica string     `json:"replica"`
	Since   *time.Time `json:"since"`
	Message string     `json:"message"`
	Level   string     `json:"level"`
	// Failures are those of a job that fails.
	Failures *streak `json:"failures"`
}

// streak is the failures of a job since its last ok.
type streak struct {
	Since   time.Time  `json:"since"`
	Count   int        `json:"count"`
	AtLeast bool       `json:"at_least"`
	LastOK  *time.Time `json:"last_ok"`
}

// History asks for all that is known of a job, newest first.
func (c *Cluster) History(t *testing.T, job string, flags ...string) []PastRun {
	t.Helper()
	const all = 10_000
	var runs []PastRun
	c.Command(t, slices.Concat([]string{"history", job, "-n", strconv.Itoa(all), "--json"}, flags)...).Decode(t, &runs)
	return runs
}

// AwaitRun waits until the history of a job has a run that meets the condition.
func (c *Cluster) AwaitRun(t *testing.T, within time.Duration, job, what string, meets func(PastRun) bool) PastRun {
	t.Helper()
	var hit PastRun
	Eventually(t, within, what+" in the history of job "+job, func() bool {
		runs := c.History(t, job, "--output")
		i := slices.IndexFunc(runs, meets)
		if i >= 0 {
			hit = runs[i]
		}
		return i >= 0
	})
	return hit
}

// Status asks for the state of the cluster.
func (c *Cluster) Status(t *testing.T) ClusterStatus {
	t.Helper()
	var s ClusterStatus
	c.Command(t, "status", "--json").Decode(t, &s)
	return s
}

// limits demands that the status has limits with these texts, and none with the others.
func (s ClusterStatus) WantLimits(t *testing.T, with, without []string) {
	t.Helper()
	has := func(text string) bool {
		return slices.ContainsFunc(s.Redis.Limits, func(limit string) bool { return strings.Contains(limit, text) })
	}
	for _, text := range with {
		if !has(text) {
			t.Errorf("no limit says %q: %q", text, s.Redis.Limits)
		}
	}
	for _, text := range without {
		if has(text) {
			t.Errorf("a limit says %q: %q", text, s.Redis.Limits)
		}
	}
}
