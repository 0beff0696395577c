//go:build linux || darwin

package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// drainTime bounds the wait for the end of a run's output once its tree is dead. Usually the end is read at once. The wait is longer only if a process
// outside the tree holds a pipe.
const drainTime = 2 * time.Second

type stdio interface {
	// attach sets stdin, stdout and stderr of a command before its start.
	attach(cmd *exec.Cmd)
	// startReading is called after the start of the command.
	startReading()
	// drain waits up to most for the end of the output, and reports whether the end was read.
	drain(most time.Duration) bool
	// tail returns the end of the output, at most Spec.Keep bytes.
	tail() []byte
	// bytesBefore returns the number of bytes that were printed before the tail.
	bytesBefore() int64
	close()
}

func (s *Spec) newStdio(buffers *sync.Pool) (stdio, error) {
	if s.Attached {
		return ownStdio{}, nil
	}
	return newCapture(s, buffers)
}

// ownStdio gives the command this process's own files, so that a terminal stays a terminal.
type ownStdio struct{}

func (ownStdio) attach(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
}
func (ownStdio) startReading()            {}
func (ownStdio) drain(time.Duration) bool { return true }
func (ownStdio) tail() []byte             { return nil }
func (ownStdio) bytesBefore() int64       { return 0 }
func (ownStdio) close()                   {}

type pipe struct {
	stream string
	r, w   *os.File
}

// capture reads the output of one run. The run's stdin is empty.
type capture struct {
	output
	pipes   []*pipe
	buffers *sync.Pool
	readers sync.WaitGroup
	cut     atomic.Bool // whether drain ran out of time before the end of a stream
}

func newCapture(s *Spec, buffers *sync.Pool) (*capture, error) {
	c := &capture{output: output{line: s.Line, kept: tail{max: s.Keep}}, buffers: buffers}
	for _, stream := range []string{"stdout", "stderr"} {
		r, w, err := os.Pipe()
		if err != nil {
			c.close()
			return nil, fmt.Errorf("pipe for %s: %w", stream, err)
		}
		c.pipes = append(c.pipes, &pipe{stream, r, w})
	}
	return c, nil
}

// attach makes the pipes the command's output. If the command runs as another user, that user becomes the owner of the pipes, so that the command can also
// open them by name, as in "echo >/dev/stderr".
func (c *capture) attach(cmd *exec.Cmd) {
	cmd.Stdout, cmd.Stderr = c.pipes[0].w, c.pipes[1].w
	if as := cmd.SysProcAttr.Credential; as != nil && os.Geteuid() == 0 {
		for _, p := range c.pipes {
			_ = p.w.Chown(int(as.Uid), int(as.Gid))
		}
	}
}

// startReading closes the write ends in this process, because the command has its own copies, and starts the readers.
func (c *capture) startReading() {
	for _, p := range c.pipes {
		p.w.Close()
		c.readers.Go(func() {
			buffer := c.buffers.Get().(*bufio.Reader)
			buffer.Reset(&lateReader{file: p.r, left: pipeSize})
			if err := c.passLines(p.stream, buffer); errors.Is(err, os.ErrDeadlineExceeded) {
				c.cut.Store(true)
			}
			buffer.Reset(nil)
			c.buffers.Put(buffer)
		})
	}
}

// lateReader reads a pipe until the deadline of the pipe, and then only what the pipe already holds. On a busy machine, the deadline may pass before the last
// output of a dead tree was read.
type lateReader struct {
	file *os.File
	left int // bytes that may still be read after the deadline, because a process outside the tree may write forever
}

// pipeSize is the default capacity of a pipe.
const pipeSize = 64 << 10

func (l *lateReader) Read(b []byte) (n int, err error) {
	n, err = l.file.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) || l.left == 0 {
		return n, err
	}
	late, fault := err, errors.New("not read")
	raw, err := l.file.SyscallConn()
	if err == nil { // the pipe is non-blocking, so unix.Read returns at once even if the pipe is empty
		err = raw.Control(func(fd uintptr) { n, fault = unix.Read(int(fd), b[:min(len(b), l.left)]) })
	}
	switch {
	case err != nil || fault != nil:
		return 0, late
	case n == 0:
		return 0, io.EOF
	}
	l.left -= n
	return n, nil
}

func (c *capture) drain(most time.Duration) bool {
	for _, p := range c.pipes {
		_ = p.r.SetReadDeadline(time.Now().Add(most))
	}
	c.readers.Wait()
	return !c.cut.Load()
}

func (c *capture) tail() []byte { return c.kept.bytes() }

func (c *capture) bytesBefore() int64 { return c.kept.bytesBefore() }

func (c *capture) close() {
	for _, p := range c.pipes {
		p.r.Close()
		p.w.Close()
	}
}
