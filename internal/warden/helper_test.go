package warden

import (
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
