package resp

import (
	"bytes"
	"strconv"
)

// requests follows the bytes that are written to a connection, command by command. A name that changes the form of replies counts as the name of a
// command only, since a job or a lock may have the same name.
type requests struct {
	line []byte // of a header that is not complete
	word int    // how many arguments of the command came
	skip int    // bytes of an argument that are to come, with its line end
	text []byte // of this argument, where it may be a name
	name [longestName + 2]byte
	// toSentinel: the first argument is the command of a Sentinel.
	toSentinel bool
}

// longestName bounds the arguments that are looked at.
const longestName = 32

// Kinds of commands whose replies have a form of their own.
const (
	subscribed = iota + 1
	askedForMaster
)

// read takes in written bytes, and calls named for each command whose replies have a form of their own.
func (r *requests) read(p []byte, named func(kind int)) {
	for len(p) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(p))
			if r.text != nil {
				r.text = append(r.text, p[:n]...)
			}
			r.skip, p = r.skip-n, p[n:]
			if r.skip == 0 {
				r.argument(named)
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
		r.header(bytes.TrimSuffix(r.line, []byte("\r")))
		r.line = r.line[:0]
	}
}

// header is "*N", before a command of N arguments, or "$N", before an argument of N bytes.
func (r *requests) header(line []byte) {
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

func (r *requests) argument(named func(kind int)) {
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
