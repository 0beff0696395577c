package embedded

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestServesOnTCP(t *testing.T) {
	s := start(t, Config{})
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Fatalf("Addr() = %q, %v", s.Addr(), err)
	}
	o, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if got := must[string](t)(connect(t, o).Ping(background).Result()); got != "PONG" {
		t.Fatalf("PING: %q", got)
	}
}

func TestBothWaysReachTheSameStore(t *testing.T) {
	s := start(t, Config{})
	must[string](t)(overTCP(t, s).Set(background, "k", "v", 0).Result())
	if got := must[string](t)(inMemory(t, s).Get(background, "k").Result()); got != "v" {
		t.Fatalf("k = %q", got)
	}
}

func TestAddressInUse(t *testing.T) {
	s := start(t, Config{})
	other, err := Start(Config{Addr: s.Addr()})
	if err == nil {
		other.Close()
		t.Fatal("a second server got the same address")
	}
	if !strings.Contains(err.Error(), "start embedded redis: listen tcp "+s.Addr()) {
		t.Fatalf("error: %v", err)
	}
}

func TestDialOnlyHasNoSocket(t *testing.T) {
	s := start(t, Config{DialOnly: true})
	if s.Addr() != DialOnlyAddr || s.URL() != "redis://"+DialOnlyAddr+"/0" {
		t.Fatalf("Addr %q, URL %q", s.Addr(), s.URL())
	}
	must[string](t)(inMemory(t, s).Ping(background).Result())
}

func TestDialRefuses(t *testing.T) {
	s := start(t, Config{DialOnly: true})
	done, cancel := context.WithCancel(background)
	cancel()
	if _, err := s.Dial(done, "tcp", s.Addr()); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	s.Close()
	if _, err := s.Dial(background, "tcp", s.Addr()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	s.Close() // once more does nothing
}

// Close with clients of all kinds connected leaves no goroutine behind, as goleak checks.
func TestCloseWithClients(t *testing.T) {
	s := start(t, Config{})
	tcp, mem := overTCP(t, s), inMemory(t, s)
	must[string](t)(tcp.Ping(background).Result())
	sub := mem.Subscribe(background, "c")
	defer sub.Close()
	must[any](t)(sub.Receive(background))
	idle, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	s.Close()
	if err := tcp.Ping(background).Err(); err == nil {
		t.Error("PING answered after Close")
	}
}

// TestCloseDuringDials lets connections arrive while the server closes.
func TestCloseDuringDials(t *testing.T) {
	s := start(t, Config{})
	dialing := make(chan struct{})
	go func() {
		defer close(dialing)
		for {
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	must[string](t)(overTCP(t, s).Ping(background).Result())
	s.Close()
	<-dialing
}

func TestFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Start(Config{DialOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c := inMemory(t, s)
		defer c.Close()
		if got := must[time.Time](t)(c.Time(background).Result()); !got.Equal(time.Now()) {
			t.Fatalf("TIME %v, the bubble's clock says %v", got, time.Now())
		}
		must[string](t)(c.Set(background, "k", "v", time.Hour).Result())
		for range 30 * 24 { // thirty days, at no cost
			pass(time.Hour - time.Millisecond)
			if n := must[int64](t)(c.Exists(background, "k").Result()); n != 1 {
				t.Fatal("expired before its time")
			}
			pass(time.Millisecond)
			if n := must[int64](t)(c.Exists(background, "k").Result()); n != 0 {
				t.Fatal("still there after its time")
			}
			must[string](t)(c.Set(background, "k", "v", time.Hour).Result())
		}
	})
}
