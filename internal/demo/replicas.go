package demo

import (
	"bufio"
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
)

// fleet is the replicas of a demo. They are separate processes whose logs arrive in one channel. It must be used by one goroutine, which reads events
// while a process is alive.
type fleet struct {
	command   []string // runs a replica, without its name
	env       []string
	input     string // stdin of each replica
	events    chan logLine
	processes map[string]*process // by name, the latest of each
	alive     int                 // processes whose end has not been read from events
	readers   sync.WaitGroup
}

// process is a process of a replica.
type process struct {
	name    string
	process *exec.Cmd
	leaving bool     // its end is expected
	words   []string // last lines outside its log, such as the reason for a failed start
}

func newFleet(command, env []string, input string) *fleet {
	return &fleet{command: command, env: env, input: input, events: make(chan logLine, 256), processes: map[string]*process{}}
}

// startReplica starts a replica. It replaces an ended one of the same name.
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

// longestLog is longer than a log line with a whole piece of output, escaped.
const longestLog = 1 << 20

// followLog reads a replica's log to its end, and waits for the process.
func (c *fleet) followLog(m *process, stderr io.Reader) {
	in := bufio.NewScanner(stderr)
	in.Buffer(nil, longestLog)
	for in.Scan() {
		line := parseLog(in.Bytes())
		line.from = m
		c.events <- line
	}
	_, _ = io.Copy(io.Discard, stderr) // so that a line that is too long does not block the replica
	end := logLine{from: m, ended: true, At: time.Now(), Error: "exit status 0"}
	if err := m.process.Wait(); err != nil {
		end.Error = err.Error()
	}
	c.events <- end
}

// noteEvent records the facts of an event that concern the fleet itself.
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

// signalAll sends a signal to all replicas, whose ends are expected then. Errors of ended ones are ignored.
func (c *fleet) signalAll(s os.Signal) {
	for _, m := range c.processes {
		m.leaving = true
		_ = m.process.Process.Signal(s)
	}
}

// killReplica sends SIGKILL to a replica.
func (c *fleet) killReplica(name string) error {
	m := c.processes[name]
	m.leaving = true
	if err := m.process.Process.Kill(); err != nil {
		return fmt.Errorf("kill replica %s: %w", name, err)
	}
	return nil
}

func (c *fleet) pidOf(name string) int { return c.processes[name].process.Process.Pid }

// close kills all replicas and waits for their ends.
func (c *fleet) close() {
	c.signalAll(os.Kill)
	for c.alive > 0 {
		e := <-c.events
		c.noteEvent(&e)
	}
	c.readers.Wait()
}

// replicaEnv returns the environment of the replicas. It is this process's own, without the variables that would change flags or identities of
// replicas. A variable that the configuration uses stays.
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
