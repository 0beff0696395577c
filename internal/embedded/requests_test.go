package embedded

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// faulty are requests that ended the process, or might, and some that are none.
var faulty = []string{
	"*0\r\n", "*-1\r\n", "*9223372036854775807\r\n", "*1048577\r\n", "*1\r\n$9223372036854775805\r\n", "*1\r\n$67108865\r\n", "*1\r\n$-1\r\n", "*1\r\n$-9\r\n", "*2\r\n$3\r\nGET\r\n$67108862\r\n",
	"*1\r\n*1\r\n", "$4\r\nPING\r\n", "*1\r\n+PING\r\n", "PING\r\n", "\r\n", "\n", "*\r\n", "*1\n", "*x\r\n", strings.Repeat("x", 100), "*1" + strings.Repeat("0", 100),
}

// TestRequestsWithoutACommand: such a request ends its connection, on a view too, and no more than that.
func TestRequestsWithoutACommand(t *testing.T) {
	s := start(t, Config{})
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s.ServeView(View{Listener: listener, Reads: []string{"PING"}})
	client := overTCP(t, s)
	for network, address := range map[string]string{"tcp": s.Addr(), "unix": listener.Addr().String()} {
		for _, text := range []string{"*0\r\n", "*-1\r\n", "*1\r\n$9223372036854775805\r\n", "*1\r\n$4\r\nPING\r\n*0\r\n"} {
			conn, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, text); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, conn) // until the server closes it
			_ = conn.Close()
		}
	}
	must[string](t)(client.Ping(background).Result())
}

func TestRequests(t *testing.T) {
	feed := func(text string, seed uint64) error {
		var r requests
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		for len(text) > 0 {
			n := min(len(text), 1+random.IntN(1<<random.IntN(20)))
			if err := r.parseBytes([]byte(text[:n])); err != nil {
				return err
			}
			text = text[n:]
		}
		return nil
	}
	for seed := range uint64(20) {
		for _, text := range []string{"*1\r\n$4\r\nPING\r\n", "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n*0\r\n\r\n*1\r\n$4\r\nPING\r\n", "*1\r\n$100000\r\n" + strings.Repeat("\n", 100_000) + "\r\n*1\r\n"} {
			if err := feed(text, seed); err != nil {
				t.Errorf("%.40q: %v", text, err)
			}
		}
		for _, text := range faulty {
			if err := feed(text, seed); !errors.Is(err, errNoRequest) {
				t.Errorf("%.40q: %v", text, err)
			}
		}
	}
}
