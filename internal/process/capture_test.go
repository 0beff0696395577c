//go:build linux

package process

import (
	"bufio"
	"strings"
	"sync"
	"testing"
	"time"
)

// The output of a dead tree is read also if the machine was too busy to read any of it in time, and other processes that hold the pipe open are not
// waited for.
func TestLateReaderLosesNothing(t *testing.T) {
	full := strings.Repeat("x", 60<<10) // nearly all that a pipe holds
	for _, held := range []bool{false, true} {
		c, err := newCapture(&Spec{Keep: 1 << 20}, &sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxLine) }})
		if err != nil {
			t.Fatal(err)
		}
		out := c.pipes[0]
		if _, err := out.w.WriteString(full + "\nlast"); err != nil {
			t.Fatal(err)
		}
		if err := out.r.SetReadDeadline(time.Unix(1, 0)); err != nil { // it is too late before the reader begins
			t.Fatal(err)
		}
		if held { // by somebody outside of the tree
			defer out.w.Close()
			out.w = c.pipes[1].w
		}
		c.startReading()
		if saw := c.drain(0); saw == held || string(c.tail()) != full+"\nlast" {
			t.Errorf("held open: %v; saw the end: %v, and %d bytes", held, saw, len(c.tail()))
		}
		c.close()
	}
}
