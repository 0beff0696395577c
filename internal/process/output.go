package process

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
	"unicode/utf8"
)

// An Output receives the output of a run that has no process, and treats it like the output of a command.
type Output struct{ output }

// NewOutput returns an Output that passes on each line, and keeps the last bytes.
func NewOutput(keep int64, line func(stream string, line []byte)) *Output {
	return &Output{output{line: line, kept: tail{max: keep}}}
}

// PassLines passes on each line of a stream, until its end or an error.
func (o *Output) PassLines(stream string, r io.Reader) error {
	return o.passLines(stream, bufio.NewReaderSize(r, maxLine))
}

// Tail returns the end of the output, and the number of bytes before it. Call it after PassLines has returned.
func (o *Output) Tail() (end []byte, cut int64) { return o.kept.bytes(), o.kept.bytesBefore() }

// maxLine is the number of bytes at which a line is cut into pieces.
const maxLine = 64 << 10

type output struct {
	mu   sync.Mutex // serializes the lines of the two streams
	line func(stream string, line []byte)
	kept tail
}

// passLines passes on each line of a stream, until its end or an error. A line longer than the buffer of r, maxLine bytes, is passed on in pieces.
func (o *output) passLines(stream string, r *bufio.Reader) error {
	cut := false     // whether the first piece of the line has been passed on
	var begun []byte // first bytes of a character whose other bytes are in the next piece
	for {
		piece, err := r.ReadSlice('\n')
		if len(begun) > 0 {
			piece, begun = append(begun, piece...), nil
		}
		full := errors.Is(err, bufio.ErrBufferFull)
		if full {
			whole := wholeCharacters(piece)
			piece, begun = piece[:whole], bytes.Clone(piece[whole:])
		}
		if len(piece) > 0 {
			o.addPiece(stream, piece, cut)
		}
		cut = full
		if err != nil && !cut {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// wholeCharacters returns the length of text without an incomplete character at its end.
func wholeCharacters(text []byte) int {
	for i := len(text) - 1; i >= 0 && i > len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return i
			}
			break
		}
	}
	return len(text)
}

// addPiece passes on a line or a piece of a line. rest reports whether an earlier piece of this line was passed on. If so, a piece that is only a newline ends
// that line, and is not passed on as an empty line.
func (o *output) addPiece(stream string, piece []byte, rest bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept.add(piece)
	if n := len(piece) - 1; piece[n] == '\n' {
		piece = piece[:n]
		if n == 0 && rest {
			return
		}
	}
	if o.line != nil {
		o.line(stream, piece)
	}
}

// tail keeps the last max bytes and starts with a whole character. It uses at most 2*max bytes of memory plus one piece.
type tail struct {
	max  int64
	buf  []byte
	seen int64 // number of bytes added so far
}

func (t *tail) add(b []byte) {
	if t.max <= 0 {
		return
	}
	t.seen += int64(len(b))
	t.buf = append(t.buf, b...)
	if int64(len(t.buf)) >= 2*t.max {
		t.buf = append(t.buf[:0], t.bytes()...)
	}
}

func (t *tail) bytes() []byte {
	if over := int64(len(t.buf)) - max(t.max, 0); over > 0 {
		rest := t.buf[over:]
		for i := 0; i < len(rest) && i < utf8.UTFMax-1 && !utf8.RuneStart(rest[0]); i++ {
			rest = rest[1:]
		}
		return rest
	}
	return t.buf
}

func (t *tail) bytesBefore() int64 { return t.seen - int64(len(t.bytes())) }
