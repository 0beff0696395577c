package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestPasswordIsNotSentInTheClear names a server by redis:// that the file names by rediss://. It hears no password, and the user is told why.
func TestPasswordIsNotSentInTheClear(t *testing.T) {
	t.Parallel()
	heard, addr := demandPassword(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "jobs.toml")
	text := "[redis]\nurl = \"rediss://" + addr + "/0\"\npassword_file = \"password\"\n"
	for name, text := range map[string]string{file: text, filepath.Join(dir, "password"): password + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	code := runCommandLine(t.Context(), []string{"history", "--config", file, "--redis", "redis://" + addr + "/0"}, streams{out: io.Discard, err: &said})
	if code != exitUnavailable || !strings.Contains(said.String(), "the password of [redis].password_file was not sent") {
		t.Errorf("exit code %d, said %s", code, &said)
	}
	if text := heard(); text == "" || strings.Contains(text, password) {
		t.Errorf("the server has heard %q", text)
	}
}

// demandPassword is a server that answers everything with NOAUTH. heard is what it was sent.
func demandPassword(t *testing.T) (heard func() string, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var text strings.Builder
	var serving sync.WaitGroup
	serve := func(conn net.Conn) {
		defer conn.Close()
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			text.Write(buffer[:n])
			mu.Unlock()
			for range bytes.Count(buffer[:n], []byte("*")) { // one for each command
				_, _ = io.WriteString(conn, "-NOAUTH Authentication required.\r\n")
			}
		}
	}
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}, l.Addr().String()
}
