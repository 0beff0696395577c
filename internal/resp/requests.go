package resp

import (
	"bytes"
	"strconv"
)

// requests parses the bytes that are written to a connection into commands. It inspects only the name of a command and the subcommand of SENTINEL. A
// later argument does not count, because a job or a lock may have the name "subscribe", for example.
type requests struct {
	line       []byte // the beginning of an incomplete header
	word       int    // the number of arguments of the command so far
	skip       int    // the bytes of an argument still to come, including its line end
	text       []byte // the current argument, if it is short enough to be inspected
	name       [longestName + 2]byte
	toSentinel bool
}

// longestName is the length in bytes of the longest argument that is inspected.
const longestName = 32

// The kinds of commands whose replies have a special form.
const (
	subscribed = iota + 1
	askedForMaster
)

// parseBytes parses p, the next bytes that the client sends. For each command whose replies have a special form, it calls named with the kind.
func (r *requests) parseBytes(p []byte, named func(kind int)) {
	for len(p) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(p))
			if r.text != nil {
				r.text = append(r.text, p[:n]...)
			}
			r.skip, p = r.skip-n, p[n:]
			if r.skip == 0 {
				r.endArgument(named)
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			r.line = append(r.line, p...)
			return
		}
		r.line = append(r.line, p[:end]...)
		p = p[end+1:]
		r.parseHeader(bytes.TrimSuffix(r.line, []byte("\r")))
		r.line = r.line[:0]
	}
}

// parseHeader parses "*N", before a command of N arguments, or "$N", before an argument of N bytes.
func (r *requests) parseHeader(line []byte) {
	if len(line) < 2 {
		return
	}
	n, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil || n < 0:
	case line[0] == '*':
		r.word, r.toSentinel = 0, false
	case line[0] == '$':
		r.skip, r.text = n+2, nil
		if r.word < 2 && n <= longestName {
			r.text = r.name[:0]
		}
	}
}

func (r *requests) endArgument(named func(kind int)) {
	text := bytes.TrimSuffix(r.text, []byte("\r\n"))
	is := func(name string) bool { return len(text) == len(name) && bytes.EqualFold(text, []byte(name)) }
	switch {
	case r.word == 0 && (is("subscribe") || is("ssubscribe") || is("psubscribe")):
		named(subscribed)
	case r.word == 0:
		r.toSentinel = is("sentinel")
	case r.word == 1 && r.toSentinel && is("get-master-addr-by-name"):
		named(askedForMaster)
	}
	r.word, r.text = r.word+1, nil
}
