package resp

import (
	"bytes"
	"fmt"
	"sync/atomic"
)

// mostKept is the maximum number of bytes stored per string of a reply.
const mostKept = 512

// A form records the types of an array's elements, because go-redis assumes these types in some replies without a check.
type form struct {
	kind  byte      // the first byte of the reply, which is its type
	parts []byte    // the types of the first elements: s for a string, i for a number, x for any other
	texts [4][]byte // the first bytes of these elements, if they are strings
}

func (f *form) beginReply(kind byte) {
	f.kind, f.parts = kind, f.parts[:0]
	for i := range f.texts {
		f.texts[i] = f.texts[i][:0]
	}
}

func (f *form) addElement(kind byte, rest []byte) {
	part := byte('x')
	switch {
	case kind == '$' && (len(rest) == 0 || rest[0] != '-'), kind == '+', kind == '=':
		part = 's'
	case kind == ':':
		part = 'i'
	}
	if len(f.parts) <= len(f.texts) {
		f.parts = append(f.parts, part)
	}
	if kind == '+' {
		f.keepText(rest)
	}
}

// keepText appends to the stored text of the last element.
func (f *form) keepText(text []byte) {
	if n := len(f.parts); n > 0 && n <= len(f.texts) && f.parts[n-1] == 's' {
		kept := &f.texts[n-1]
		*kept = append(*kept, text[:min(len(text), mostKept-len(*kept))]...)
	}
}

// markNull records a null. At level 0, the whole reply is null.
func (f *form) markNull(level int) {
	if level == 0 {
		f.kind = '_'
	}
}

func (f *form) isArray() bool { return f.kind == '*' || f.kind == '~' || f.kind == '>' }

// checkReply returns an error if a complete reply has a form on which go-redis would panic. messages and addresses are fields of [scanner].
func (f *form) checkReply(messages bool, addresses *atomic.Bool) error {
	if !f.isArray() {
		if f.kind == '-' || f.kind == '_' || f.kind == '$' {
			addresses.Store(false)
		}
		return nil
	}
	if addresses.CompareAndSwap(true, false) && string(f.parts) != "ss" {
		return fmt.Errorf("the address of a master of the form %q", f.parts)
	}
	if !messages && f.kind != '>' {
		return nil
	}
	return f.checkMessage()
}

// checkMessage returns an error if a message lacks an element that go-redis reads.
func (f *form) checkMessage() error {
	if len(f.parts) == 0 || f.parts[0] != 's' {
		return fmt.Errorf("a message of the form %q", f.parts)
	}
	parts, ok := string(f.parts), true
	switch kind := string(f.texts[0]); kind {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe":
		ok = parts == "ssi" || parts == "sxi"
	case "message", "smessage":
		ok = parts == "sss" && (string(f.texts[1]) != "+switch-master" || bytes.Count(f.texts[2], []byte(" ")) >= 4)
	case "pmessage":
		ok = parts == "ssss"
	case "pong":
		ok = parts == "ss"
	}
	if !ok {
		return fmt.Errorf("a message %.20q of the form %q", f.texts[0], f.parts)
	}
	return nil
}
