package demo

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
)

// fleet starts and ends the replicas of a demo. Each replica is a process of its own. The log lines of all replicas arrive in the channel events. Only one
// goroutine may use the fleet, and it must read events while a process is alive.
type fleet struct {
	command   []string // command line of a replica, without its name
	env       []string
	input     string // stdin of each replica
	events    chan logLine
	processes map[string]*process // by the name of the replica
	alive     int                 // number of processes whose end was not read from events yet
	readers   sync.WaitGroup
}

type process struct {
	name    string
	process *exec.Cmd
	leaving bool     // the demo has ended the process or is ending it
	words   []string // last lines that are not log lines, such as the reason for a failed start
}

func newFleet(command, env []string, input string) *fleet {
	return &fleet{command: command, env: env, input: input, events: make(chan logLine, 256), processes: map[string]*process{}}
}

func (c *fleet) startReplica(name string) error {
	args := append(slices.Clone(c.command[1:]), "--replica", name)
	m := &process{name: name, process: exec.Command(c.command[0], args...)}
	m.process.Env, m.process.Stdin = c.env, strings.NewReader(c.input)
	tieToDemo(m.process)
	stderr, err := m.process.StderrPipe()
	if err == nil {
		err = m.process.Start()
	}
	if err != nil {
		return fmt.Errorf("start replica %s: %w", name, err)
	}
	c.processes[name] = m
	c.alive++
	c.readers.Go(func() { c.followLog(m, stderr) })
	return nil
}

// longestLog is the maximum length of a log line. Replicas log shorter lines: see logging.MaxJSONLine.
const longestLog = 1 << 20

// followLog reads the log of a replica to its end, and waits for the process to end.
func (c *fleet) followLog(m *process, stderr io.Reader) {
	in := bufio.NewScanner(stderr)
	in.Buffer(nil, longestLog)
	for in.Scan() {
		line := parseLog(in.Bytes())
		line.from = m
		c.events <- line
	}
	_, _ = io.Copy(io.Discard, stderr) // a line that is too long ends the scan; without this read, the replica would then block on its log
	end := logLine{from: m, ended: true, At: time.Now(), Error: "exit status 0"}
	if err := m.process.Wait(); err != nil {
		end.Error = err.Error()
	}
	c.events <- end
}

func (c *fleet) noteEvent(e *logLine) {
	if e.ended {
		c.alive--
		return
	}
	if e.Level == "" {
		const enough = 5
		e.from.words = append(e.from.words, e.Message)
		e.from.words = e.from.words[max(0, len(e.from.words)-enough):]
	}
}

// signalAll sends a signal that ends all replicas. Errors are ignored, because a replica may have ended.
func (c *fleet) signalAll(s os.Signal) {
	for _, m := range c.processes {
		m.leaving = true
		_ = m.process.Process.Signal(s)
	}
}

func (c *fleet) killReplica(name string) (pid int, err error) {
	m := c.processes[name]
	m.leaving = true
	if err := m.process.Process.Kill(); err != nil {
		return 0, fmt.Errorf("kill replica %s: %w", name, err)
	}
	return m.process.Process.Pid, nil
}

// close kills all replicas and waits until they have ended.
func (c *fleet) close() {
	c.signalAll(os.Kill)
	for c.alive > 0 {
		e := <-c.events
		c.noteEvent(&e)
	}
	c.readers.Wait()
}

// replicaEnv returns the environment of the replicas: the environment of this process without cronclave's own variables, which would change flags or names of
// replicas, and with the variables in more. A variable that the configuration uses is kept.
func replicaEnv(environ []string, cfg *config.Config, more map[string]string) []string {
	var env []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		_, replaced := more[name]
		if replaced || strings.HasPrefix(name, "CRONCLAVE_") && !asksFor(cfg, name) {
			continue
		}
		env = append(env, entry)
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		env = append(env, name+"="+more[name])
	}
	return env
}

func asksFor(cfg *config.Config, variable string) bool {
	return cfg.EnvTaken[variable] || slices.ContainsFunc(cfg.Jobs, func(j config.Job) bool { return j.EnvTaken[variable] })
}

// run is one execution of a job, as the job itself or a replica's log reports it.
type run struct {
	ID      string    `json:"run_id"`
	Job     string    `json:"job"`
	Replica string    `json:"replica"`
	Tick    time.Time `json:"tick"`
	Slot    int       `json:"slot"`
	Token   int64     `json:"token"`

	Started time.Time `json:"-"`
	Ended   time.Time `json:"-"` // zero until the run is known to have ended
	shown   bool      // whether it was printed as running
}

// logLine has the fields that the demo uses of a line in a replica's log. For a line that is not JSON, Message is the line and Level is "".
type logLine struct {
	run
	Level   string          `json:"level"`
	Message string          `json:"msg"`
	At      time.Time       `json:"time"`
	Stream  string          `json:"stream"` // set if Message is output of a job
	Outcome journal.Outcome `json:"outcome"`
	Reason  string          `json:"reason"`
	Took    string          `json:"duration"`
	Error   string          `json:"error"`

	from  *process // process that wrote the log
	ended bool     // set if this is not a log line but the end of the process, with the exit status in Error
}

// Messages about ticks and runs in the log of a replica.
const (
	saidStarted   = "started"
	saidFinished  = "finished"
	saidNotRun    = "tick not run"
	saidAbandoned = "run abandoned: its holder is gone"
)

func parseLog(line []byte) logLine {
	var l logLine
	// A line that the demo does not know may use the same keys with values of other types. The fields that could be parsed are used.
	if err := json.Unmarshal(line, &l); err != nil && l.Message == "" {
		return logLine{Message: string(line), At: time.Now()}
	}
	return l
}

func (l *logLine) toRun() *run {
	r := l.run
	r.Replica, r.Started = l.from.name, l.At
	return &r
}
