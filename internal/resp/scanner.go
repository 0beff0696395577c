package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
)

// A scanner checks a stream of replies. The stream may arrive in pieces of any size.
type scanner struct {
	line  []byte // the beginning of an incomplete line
	skip  int    // the bytes of a string still to come, including its line end
	open  []int  // for each open array or map, the outermost first: the number of elements still to come
	bytes int    // the bytes of the current reply so far
	total int    // the number of elements in the headers of the current reply so far

	requests  requests // the written commands
	form      form
	messages  atomic.Bool // the connection has subscribed, so arrays are messages
	addresses atomic.Bool // the next array is the reply of a Sentinel with the address of a master
}

// noteRequests records the written commands whose replies have a special form. It must not be called concurrently.
func (s *scanner) noteRequests(p []byte) {
	s.requests.parseBytes(p, func(kind int) {
		switch kind {
		case subscribed:
			s.messages.Store(true)
		case askedForMaster:
			s.addresses.Store(true)
		}
	})
}

// feed checks received bytes, and returns an error if they are not a well-formed reply.
func (s *scanner) feed(p []byte) error {
	for len(p) > 0 {
		if s.skip > 0 {
			n, err := s.skipString(p)
			if err != nil {
				return err
			}
			p = p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if len(s.line)+max(end, 0) > mostLine || end < 0 && len(s.line)+len(p) > mostLine {
			return fmt.Errorf("a line of more than %d bytes", mostLine)
		}
		if end < 0 {
			s.line = append(s.line, p...)
			return nil
		}
		line := p[:end+1]
		if len(s.line) > 0 {
			s.line = append(s.line, line...)
			line = s.line
		}
		p = p[end+1:]
		if err := s.parseHeader(line); err != nil {
			return err
		}
		s.line = s.line[:0]
	}
	return nil
}

func (s *scanner) skipString(p []byte) (int, error) {
	n := min(len(p), s.skip-2)
	if n > 0 {
		s.form.keepText(p[:n])
		s.skip -= n
		return n, nil
	}
	if p[0] != "\n\r"[s.skip-1] {
		return 0, errors.New("a string that does not end where it should")
	}
	if s.skip--; s.skip == 0 {
		return 1, s.endElement()
	}
	return 1, nil
}

func (s *scanner) parseHeader(line []byte) error {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return fmt.Errorf("the line %.40q", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	if s.bytes += len(line); s.bytes > mostBytes {
		return fmt.Errorf("more than %d bytes", mostBytes)
	}
	if len(s.open) == 1 {
		s.form.addElement(kind, rest)
	} else if len(s.open) == 0 {
		s.form.beginReply(kind)
	}
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		if kind == '(' && len(rest) > 1000 {
			return fmt.Errorf("a number of %d digits", len(rest))
		}
		return s.endElement()
	case '$', '=', '!':
		return s.beginElement(kind, rest, mostBulk)
	case '*', '~', '>':
		return s.beginElement(kind, rest, mostElements)
	case '%':
		return s.beginElement(kind, rest, mostPairs)
	}
	return fmt.Errorf("the line %.40q", line)
}

// beginElement checks the length of a string, an array or a map, and starts to read the element.
func (s *scanner) beginElement(kind byte, length []byte, most int) error {
	n, err := strconv.Atoi(string(length))
	if err != nil || n < -1 || n > most {
		return fmt.Errorf("a length of %.40q", length)
	}
	switch {
	case n < 0:
		s.form.markNull(len(s.open))
		return s.endElement()
	case kind == '$' || kind == '=' || kind == '!':
		if s.bytes += n; s.bytes > mostBytes {
			return fmt.Errorf("more than %d bytes", mostBytes)
		}
		s.skip = n + 2
		return nil
	case kind == '%':
		n *= 2
	}
	if s.total += n; s.total > mostElements {
		return fmt.Errorf("more than %d elements", mostElements)
	}
	if n == 0 {
		return s.endElement()
	}
	if len(s.open) == mostDepth {
		return fmt.Errorf("more than %d levels", mostDepth)
	}
	s.open = append(s.open, n)
	return nil
}

// endElement ends an element, and each array that this element completes.
func (s *scanner) endElement() error {
	for len(s.open) > 0 {
		last := len(s.open) - 1
		if s.open[last]--; s.open[last] > 0 {
			return nil
		}
		s.open = s.open[:last]
	}
	s.bytes, s.total = 0, 0
	return s.form.checkReply(s.messages.Load(), &s.addresses)
}
