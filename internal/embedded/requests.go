package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// The limits of one request. They are far above any request of cronclave.
const (
	mostArguments = 1 << 20
	mostRequest   = 64 << 20 // total bytes of the arguments
	longestHeader = 32       // bytes of the header line of a request or an argument
)

var errNoRequest = errors.New("not a request")

// requests validates the bytes that a client sends. miniredis panics on a request without arguments, in a goroutine that cannot recover, and
// allocates as much memory as a header requests. Without this check, any process of the same user could crash a trial's replica.
type requests struct {
	line []byte // the beginning of an incomplete header
	left int    // the number of arguments still to come
	size int    // the bytes of the arguments so far
	skip int    // the bytes of an argument still to come, including its line end
}

// parseBytes parses received bytes.
func (r *requests) parseBytes(p []byte) error {
	for len(p) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(p))
			r.skip, p = r.skip-n, p[n:]
			continue
		}
		n, whole := bytes.IndexByte(p, '\n')+1, true
		if n == 0 {
			n, whole = len(p), false
		}
		if len(r.line)+n > longestHeader {
			return fmt.Errorf("%w: a header of more than %d bytes", errNoRequest, longestHeader)
		}
		r.line, p = append(r.line, p[:n]...), p[n:]
		if !whole {
			return nil
		}
		if err := r.parseHeader(r.line); err != nil {
			return err
		}
		r.line = r.line[:0]
	}
	return nil
}

// parseHeader parses "*N", before a request of N arguments, or "$N", before an argument of N bytes.
func (r *requests) parseHeader(line []byte) error {
	text, whole := bytes.CutSuffix(line, []byte("\r\n"))
	if whole && len(text) > 1 {
		n, err := strconv.Atoi(string(text[1:]))
		switch {
		case err != nil:
		case text[0] == '*' && r.left == 0 && n >= 1 && n <= mostArguments:
			r.left, r.size = n, 0
			return nil
		case text[0] == '$' && r.left > 0 && n >= 0 && n <= mostRequest-r.size:
			r.left, r.size, r.skip = r.left-1, r.size+n, n+2
			return nil
		}
	}
	return fmt.Errorf("%w: the header %q", errNoRequest, line)
}
