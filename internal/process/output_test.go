//go:build linux

package process

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"
)

// take reads a stream with an output of its own.
func take(t *testing.T, keep int64, r io.Reader) (lines []string, kept string) {
	t.Helper()
	o := output{kept: tail{max: keep}, line: func(_ string, l []byte) { lines = append(lines, string(l)) }}
	if err := o.passLines("stdout", bufio.NewReaderSize(r, maxLine)); err != nil {
		t.Fatal(err)
	}
	return lines, string(o.kept.bytes())
}

func TestLines(t *testing.T) {
	full := strings.Repeat("x", maxLine)
	tests := map[string]struct {
		in   string
		want []string
	}{
		"none":                             {"", nil},
		"two":                              {"a\nb\n", []string{"a", "b"}},
		"empty ones":                       {"\n\na\n", []string{"", "", "a"}},
		"no newline at the end":            {"a\nb", []string{"a", "b"}},
		"invalid UTF-8":                    {"\xff\xfe a\x00b\n", []string{"\xff\xfe a\x00b"}},
		"carriage returns stay":            {"50%\r100%\r\n", []string{"50%\r100%\r"}},
		"just below the limit":             {full[1:] + "\nb\n", []string{full[1:], "b"}},
		"at the limit":                     {full + "\nb\n", []string{full, "b"}},
		"at the limit, then an empty line": {full + "\n\nb\n", []string{full, "", "b"}},
		"longer":                           {full + full + "tail\nb\n", []string{full, full, "tail", "b"}},
		"longer, no newline":               {full + "tail", []string{full, "tail"}},
		"at the limit, at the end":         {full, []string{full}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for way, r := range map[string]io.Reader{
				"whole":      strings.NewReader(tt.in),
				"in halves":  iotest.HalfReader(strings.NewReader(tt.in)),
				"data + EOF": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				lines, kept := take(t, 1<<20, r)
				if !slices.Equal(lines, tt.want) {
					t.Errorf("%s: %d lines, want %d", way, len(lines), len(tt.want))
				}
				if kept != tt.in {
					t.Errorf("%s: the tail differs from the input", way)
				}
			}
		})
	}
}

func TestLinesBeforeAReadFaultCount(t *testing.T) {
	var lines []string
	o := output{line: func(_ string, l []byte) { lines = append(lines, string(l)) }}
	fault := errors.New("broken")
	err := o.passLines("stdout", bufio.NewReaderSize(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(fault)), maxLine))
	if !errors.Is(err, fault) || !slices.Equal(lines, []string{"a", "b"}) {
		t.Errorf("got %q, %v", lines, err)
	}
}

func TestTail(t *testing.T) {
	in := strings.Repeat("0123456789\n", 1000)
	for _, keep := range []int64{-1, 0, 1, 10, 100, 4096, int64(len(in)) - 1, int64(len(in)), 1 << 20} {
		_, kept := take(t, keep, strings.NewReader(in))
		if want := in[len(in)-int(max(0, min(keep, int64(len(in))))):]; kept != want {
			t.Errorf("keep %d: %d bytes kept, want %d", keep, len(kept), len(want))
		}
	}
}

func TestOutputOfARun(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		s := newScript(t, h, `echo one; read _ <$GO; echo two >&2; read _ <$HOLD; printf 'three \377'`)
		s.start()
		s.await("one")
		s.release("GO")
		eventually(t, "the line on stderr", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.lines) == 2
		})
		s.release("HOLD")
		e := s.end()
		if want := []string{"stdout one", "stderr two", "stdout three \xff"}; !slices.Equal(s.lines, want) {
			t.Errorf("lines %q, want %q", s.lines, want)
		}
		if want := "one\ntwo\nthree \xff"; string(e.Tail) != want {
			t.Errorf("tail %q, want %q", e.Tail, want)
		}
	})
}

func TestStdinIsEmpty(t *testing.T) {
	if e := sh(t, newTestHost(t, false), `[ "$(wc -c)" = 0 ]`); e.Code != 0 {
		t.Errorf("ended as %+v", e)
	}
}

// TestBigOutputIsBoundedInMemory reads 10 MiB of output with a bounded use of memory.
// Promise: P9
func TestBigOutputIsBoundedInMemory(t *testing.T) {
	h := newTestHost(t, false)
	const size, keep = 10 << 20, 64 << 10
	var got int
	s := Spec{
		Argv: []string{"/bin/sh", "-c", "yes 0123456789 | head -c 5242880; head -c 5242880 /dev/zero >&2; echo end; echo end >&2"},
		Env:  []string{"PATH=/usr/bin:/bin"},
		Keep: keep,
		Line: func(_ string, l []byte) { got += len(l) },
	}
	h.Run(t.Context(), t.Context(), s) // fills the pools
	got = 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e := h.Run(t.Context(), t.Context(), s)
	runtime.ReadMemStats(&after)
	if e.Cut != size+int64(len("end\nend\n"))-keep {
		t.Errorf("%d bytes are said to be cut", e.Cut)
	}
	if e.Code != 0 || len(e.Tail) != keep || !bytes.HasSuffix(e.Tail, []byte("end\n")) {
		t.Errorf("code %d, %d bytes of tail", e.Code, len(e.Tail))
	}
	if got < size*9/10 {
		t.Errorf("only %d bytes came", got)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20 {
		t.Errorf("%d KiB were allocated for %d KiB of output", used>>10, size>>10)
	}
}

// TestPiecesEndWithWholeCharacters reads lines of characters of two to four bytes that are longer than a piece, and keeps an end of each length.
func TestPiecesEndWithWholeCharacters(t *testing.T) {
	for _, character := range []string{"ä", "€", "😀"} {
		for shift := range 4 {
			in := strings.Repeat("x", shift) + strings.Repeat(character, 40_000) + "\nnext\n"
			lines, _ := take(t, 0, iotest.HalfReader(strings.NewReader(in)))
			for i, l := range lines {
				if !utf8.ValidString(l) || len(l) > maxLine+utf8.UTFMax {
					t.Errorf("%s, %d: piece %d of %d bytes is cut within a character", character, shift, i, len(l))
				}
			}
			if got := strings.Join(lines[:len(lines)-1], "") + "\n" + lines[len(lines)-1] + "\n"; got != in {
				t.Errorf("%s, %d: %d bytes came, not %d", character, shift, len(got), len(in))
			}
			for keep := int64(20); keep < 28; keep++ {
				_, kept := take(t, keep, strings.NewReader(in))
				if !utf8.ValidString(kept) || len(kept) < int(keep)-3 || !strings.HasSuffix(in, kept) {
					t.Errorf("%s: of the last %d bytes %q is kept", character, keep, kept)
				}
			}
		}
	}
	lines, kept := take(t, 10, strings.NewReader(strings.Repeat("x", maxLine-1)+"\xf0"))
	if last := lines[len(lines)-1]; last != "\xf0" || !strings.HasSuffix(kept, "\xf0") {
		t.Errorf("half a character at the end: %q, %q", last, kept)
	}
}

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
