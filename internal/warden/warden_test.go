package warden

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

// TestMain makes the test binary the helper, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Subcommand {
		if err := Main(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// An answer that is due may be late by some looks, but not by more, however much else is asked meanwhile.
func TestHangIsSeenByLooksWithoutProgress(t *testing.T) {
	h := &helper{wake: make(chan struct{}, 1)}
	look := func(want bool) {
		t.Helper()
		if got := h.checkHang(); got != want {
			t.Errorf("hangs: %v, want %v (sent %d, acknowledged %d)", got, want, h.sent, h.acked)
		}
	}
	look(false) // asks for an answer
	for range 20 {
		look(false)
		h.handleAck(h.sent)
		look(false)
	}
	for range 10 { // it is slow, but goes on
		h.send(message{Verb: ping})
		h.send(message{Verb: ping})
		h.handleAck(h.acked + 1)
		look(false)
	}
	for range mostSilence - 1 {
		h.send(message{Verb: ping})
		look(false)
	}
	look(true)
}

func TestAcknowledgementIsForAllBefore(t *testing.T) {
	h := &helper{wake: make(chan struct{}, 1)}
	var known []<-chan struct{}
	for range 5 {
		known = append(known, h.send(message{Verb: ping}))
	}
	h.handleAck(3)
	h.handleAck(2) // never less than it was
	for i, k := range known {
		select {
		case <-k:
			if i >= 3 {
				t.Errorf("message %d counts as known", i+1)
			}
		default:
			if i < 3 {
				t.Errorf("message %d does not count as known", i+1)
			}
		}
	}
	if h.acked != 3 || len(h.waits) != 2 {
		t.Errorf("acknowledged %d, %d wait", h.acked, len(h.waits))
	}
}

// A helper that neither answers nor dies, since it hangs in the kernel, holds up the end of a run for no longer than any other.
func TestReapIsBounded(t *testing.T) {
	child := exec.Command("/bin/true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := &helper{cmd: child, wake: make(chan struct{}, 1), dead: make(chan struct{})}
		w := &Warden{helper: h, wards: map[uint64]*Ward{}}
		ward := w.Watch(Run{Name: "a"})
		begun := time.Now()
		if late, _ := ward.Reap(); late {
			t.Error("the run is told to be late")
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestWordsAreBounded(t *testing.T) {
	var w words
	for range 100 {
		if n, err := w.Write([]byte(strings.Repeat("x", 100))); n != 100 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := len(w.String()); n != 2048 {
		t.Errorf("%d bytes are kept", n)
	}
}

// A run that waits for the successor of a dead warden does not start before the successor knows it: while a warden is replaced no run is unprotected.
// Promise: P7
func TestNoRunStartsBetweenTwoHelpers(t *testing.T) {
	now, cancel := context.WithCancel(t.Context())
	cancel()
	w := &Warden{cfg: Config{OnChange: func(bool) {}}, changed: make(chan struct{})}
	dead := &helper{}
	for range 1_000 {
		w.setHelper(dead, true)
		var all sync.WaitGroup
		var begun, told atomic.Int32
		for range 2 {
			all.Go(func() {
				for w.Ready() {
					if begun.Add(1); w.awaitHelper(now, dead) == nil {
						told.Add(1)
					}
				}
			})
		}
		for begun.Load() < 2 {
			runtime.Gosched()
		}
		w.clearHelper()
		if all.Wait(); told.Load() > 0 {
			t.Fatal("a run may start, and there is no helper")
		}
	}
}

var anyMessage = rapid.Custom(func(t *rapid.T) message {
	return message{
		Verb: verb(rapid.StringMatching(`[a-z]+`).Draw(t, "verb")), Seq: rapid.Uint64().Draw(t, "seq"), Run: rapid.Uint64().Draw(t, "run"),
		Name: rapid.String().Draw(t, "name"), ID: rapid.String().Draw(t, "id"), Cgroup: rapid.String().Draw(t, "cgroup"),
		PID: rapid.Int().Draw(t, "pid"), Start: rapid.Uint64().Draw(t, "start"),
		Deadline: time.Duration(rapid.Int64().Draw(t, "deadline")), Told: rapid.Bool().Draw(t, "told"),
	}
})

// However a pipe cuts them, messages arrive as they were sent.
func TestMessagesSurviveAnyCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOfN(anyMessage, 1, 10).Draw(t, "messages")
		var text []byte
		for _, m := range sent {
			text = append(text, m.encodeLine()...)
		}
		var got []message
		var l lines
		for len(text) > 0 {
			n := rapid.IntRange(1, len(text)).Draw(t, "piece")
			all, err := l.add(slices.Clone(text[:n]))
			if err != nil {
				t.Fatal(err)
			}
			got, text = append(got, all...), text[n:]
		}
		if !reflect.DeepEqual(got, sent) {
			t.Fatalf("got  %+v\nsent %+v", got, sent)
		}
	})
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	for _, text := range []string{"\n", "hello\n", "{\"verb\":1}\n", "[]\n", strings.Repeat("x", longestLine+1)} {
		var l lines
		if all, err := l.add([]byte(text)); err == nil || len(all) > 0 {
			t.Errorf("%.20q: %v, %v", text, all, err)
		}
	}
}

// The longest message goes over a pipe in one piece, so that none is torn where a write must not block.
func TestAnswersAreShort(t *testing.T) {
	const pipeBuf = 512 // POSIX allows no less
	for _, m := range []message{{Verb: ack, Seq: 1<<64 - 1}, {Verb: killed, Run: 1<<64 - 1, Name: strings.Repeat("n", 128)}} {
		if n := len(m.encodeLine()); n > pipeBuf {
			t.Errorf("%+v takes %d bytes", m, n)
		}
	}
}
