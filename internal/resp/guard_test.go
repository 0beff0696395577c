package resp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// stream is a connection on which replies come in random pieces.
type stream struct {
	net.Conn
	replies []byte
	random  *rand.Rand
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.replies) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.replies[:1+s.random.IntN(len(s.replies))])
	s.replies = s.replies[n:]
	return n, nil
}

func (s *stream) Write(p []byte) (int, error) { return len(p), nil }
func (s *stream) Close() error                { return nil }

// read is the part of replies that the guard passes on.
func read(asked, replies string, seed uint64) (string, error) {
	conn := Guard(&stream{replies: []byte(replies), random: rand.New(rand.NewPCG(seed, 1))})
	if asked != "" {
		_, _ = conn.Write([]byte(asked))
	}
	var all bytes.Buffer
	_, err := all.ReadFrom(conn)
	return all.String(), err
}

const (
	subscribing = "*2\r\n$9\r\nsubscribe\r\n$1\r\na\r\n"
	addressed   = "*3\r\n$8\r\nsentinel\r\n$23\r\nget-master-addr-by-name\r\n$1\r\nm\r\n"
)

func TestRepliesPass(t *testing.T) {
	for _, tc := range []struct{ asked, replies string }{
		{"", "+OK\r\n:17\r\n-ERR no\r\n$-1\r\n*-1\r\n_\r\n#t\r\n,1.5\r\n(123\r\n"},
		{"", "$5\r\nhello\r\n$0\r\n\r\n$4\r\n\r\n\r\n\r\n=7\r\ntxt:abc\r\n!3\r\nERR\r\n"},
		{"", "*3\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n$-1\r\n%1\r\n+k\r\n~1\r\n:2\r\n"},
		{"", "$100000\r\n" + strings.Repeat("\n", 100_000) + "\r\n"},
		{"", strings.Repeat("*1\r\n", mostDepth) + ":1\r\n" + strings.Repeat("*1\r\n", mostDepth) + ":1\r\n"},
		{subscribing, "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$4\r\ntext\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n+PONG\r\n"},
		// An argument that is called as a command is none.
		{"*4\r\n$4\r\nzadd\r\n$1\r\na\r\n$1\r\n1\r\n$9\r\nsubscribe\r\n*1\r\n$4\r\nexec\r\n", "*1\r\n:0\r\n*0\r\n"},
		{"*2\r\n$3\r\nget\r\n$23\r\nget-master-addr-by-name\r\n", "*0\r\n"},
		{subscribing, "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$9\r\nm a 1 b 2\r\n"},
		{addressed, "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n*0\r\n"},
		{addressed, "*-1\r\n"},
	} {
		for seed := range uint64(50) {
			if got, err := read(tc.asked, tc.replies, seed); err != nil || got != tc.replies {
				t.Fatalf("%.80q: %v, %.80q", tc.replies, err, got)
			}
		}
	}
}

// malformed are replies that ended the process, or might.
var malformed = []string{
	"$9223372036854775807\r\n", "$1000000000000\r\n", "$-2\r\n", "$x\r\n", "$\r\n", "*9223372036854775807\r\n", "*100000000\r\n", "*-7\r\n", "%4611686018427387904\r\n",
	"|1\r\n", "?\r\n", "\r\n", "\n", "hello\r\n", "$1\r\nabc\r\n", "+a\n", strings.Repeat("*1\r\n", 1000), strings.Repeat("|1\r\n", 1000),
	"+" + strings.Repeat("x", 2*mostLine), "*2\r\n*1000000\r\n" + strings.Repeat(":1\r\n", 1_000_000) + "*1000000\r\n", ">1\r\n:1\r\n", ">0\r\n",
	"(" + strings.Repeat("9", 5000) + "\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
}

// TestMalformedRepliesDoNotPass refuses replies that do not follow the Redis protocol.
// Promise: damage
func TestMalformedRepliesDoNotPass(t *testing.T) {
	faults := []struct{ asked, replies string }{
		{subscribing, "*0\r\n"}, {subscribing, "*1\r\n:1\r\n"}, {subscribing, "*2\r\n$9\r\nsubscribe\r\n$1\r\na\r\n"}, {subscribing, "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n$1\r\n1\r\n"},
		{subscribing, "*2\r\n$7\r\nmessage\r\n$1\r\na\r\n"}, {subscribing, "*3\r\n$7\r\nmessage\r\n:1\r\n$1\r\na\r\n"}, {subscribing, "*1\r\n$4\r\npong\r\n"},
		{subscribing, "*3\r\n$8\r\npmessage\r\n$1\r\na\r\n$1\r\na\r\n"}, {subscribing, "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$3\r\nm a\r\n"},
		{addressed, "*1\r\n$1\r\na\r\n"}, {addressed, "*0\r\n"}, {addressed, "*2\r\n:1\r\n:2\r\n"},
	}
	for _, replies := range malformed {
		faults = append(faults, struct{ asked, replies string }{"", replies})
	}
	for _, tc := range faults {
		for seed := range uint64(5) {
			if _, err := read(tc.asked, tc.replies, seed); !errors.Is(err, ErrMalformed) {
				t.Errorf("%.80q: %v", tc.replies, err)
			}
		}
	}
}

// ask has go-redis ask a server that answers each connection with the same bytes, whatever it is asked.
func ask(t *testing.T, replies []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return Guard(&stream{Conn: silent{}, replies: bytes.Clone(replies), random: rand.New(rand.NewPCG(uint64(len(replies)), 2))}), nil
		},
		MaxRetries: -1, DialerRetries: 1, PoolSize: 1, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
	})
	defer client.Close()
	_ = client.Eval(ctx, "return 1", nil).Err()
	_ = client.Time(ctx).Err()
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HGetAll(ctx, "a")
		p.ZRangeWithScores(ctx, "a", 0, -1)
		p.XRange(ctx, "a", "-", "+")
		p.HMGet(ctx, "a", "b")
		p.SMembers(ctx, "a")
		p.Info(ctx)
		return nil
	})
	_ = client.ClusterShards(ctx).Err()
	sub := client.Subscribe(ctx)
	defer sub.Close()
	_ = sub.Subscribe(ctx, "a")
	for range 10 {
		if _, err := sub.ReceiveTimeout(ctx, time.Second); err != nil {
			break
		}
	}
	sentinel := redis.NewSentinelClient(client.Options())
	defer sentinel.Close()
	if addr, err := sentinel.GetMasterAddrByName(ctx, "m").Result(); err == nil && len(addr) != 2 {
		t.Errorf("an address of %d parts", len(addr))
	}
}

// silent has no network.
type silent struct{ net.Conn }

func (silent) SetDeadline(time.Time) error      { return nil }
func (silent) SetReadDeadline(time.Time) error  { return nil }
func (silent) SetWriteDeadline(time.Time) error { return nil }
func (silent) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (silent) LocalAddr() net.Addr              { return &net.TCPAddr{} }

// Arbitrary bytes from a server do not make the client panic, or make room for bytes that do not come.
// Promise: damage
func FuzzReplies(f *testing.F) {
	for _, s := range malformed {
		f.Add([]byte(s))
	}
	f.Add([]byte("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$4\r\ntext\r\n"))
	f.Add([]byte("*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n"))
	f.Add([]byte("*2\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n$3\r\n1-2\r\n"))
	f.Add([]byte("*2\r\n$1\r\na\r\n$3\r\n1.5\r\n"))
	f.Add([]byte("%1\r\n*0\r\n:1\r\n"))
	f.Add([]byte("*2\r\n$-1\r\n$-1\r\n"))
	f.Fuzz(func(t *testing.T, replies []byte) {
		if len(replies) > 1<<20 {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ask(t, replies)
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > 8*mostBytes {
			t.Errorf("%d bytes were made for %d", made, len(replies))
		}
	})
}
