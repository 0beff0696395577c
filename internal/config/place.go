package config

import "strings"

// The TOML library tells no positions of what it has decoded, so a second, small reader finds them. It reads text that
// the library reads as well, and therefore judges nothing: it only follows keys, brackets and strings, and notes at
// which byte each key and each value begins. What it makes of text that is no TOML is of no use, but does no harm.

// place is where something stands, in bytes from the start of the text. It has the shape of what stands there.
type place struct {
	key   int               // where its key begins; for an element of a list, which has none, that is val
	val   int               // where its value begins; for a table with a header that is its key again
	given bool              // has a key or header of its own, and is not only a part of a longer key
	keys  map[string]*place // of a table
	items []*place          // of a list, and of a table in [[several]] parts
}

// child returns the place of a key in a table, and makes it where there is none yet.
func (p *place) child(name string, at int) *place {
	if c := p.keys[name]; c != nil {
		return c
	}
	if p.keys == nil {
		p.keys = make(map[string]*place)
	}
	c := &place{key: at, val: at}
	p.keys[name] = c
	return c
}

// latest returns the table that keys and headers go on to fill: the last part of one in [[several]] parts.
func (p *place) latest() *place {
	if len(p.items) == 0 {
		return p
	}
	return p.items[len(p.items)-1]
}

// twin is a job, table or key that is defined a second time.
type twin struct {
	kind, name string // kind is "job", "table" or "key"
	first, key int    // where its key is for the first and the second time
	from, upTo int    // where the second definition begins and ends
}

// scanner finds the places in TOML text.
type scanner struct {
	src   string
	pos   int
	table *place // what the last header opened
	twins []twin
	open  *twin // a table whose header is there a second time: it lasts until the next header
}

// scan returns the place of the whole text, and what the text defines twice.
func scan(src string) (*place, []twin) {
	root := &place{}
	s := &scanner{src: src, table: root}
	for s.blank(); s.pos < len(src); s.blank() {
		start := s.pos
		if src[s.pos] == '[' {
			s.header(root)
		} else {
			s.pair(s.table)
		}
		if s.pos == start {
			s.pos++ // no TOML: go on behind it
		}
	}
	s.endTwin()
	return root, s.twins
}

// header reads [a.b] or [[a.b]] and opens that table.
func (s *scanner) header(root *place) {
	s.endTwin()
	start := s.pos
	s.skip('[')
	several := s.skip('[')
	parent, name, at := s.path(root)
	if s.skip(']') && several {
		s.skip(']')
	}
	t := parent.child(name, at)
	switch {
	case several:
		part := &place{key: at, val: at}
		t.items = append(t.items, part)
		t.given, t = true, part
	case t.given:
		s.open = &twin{kind: "table", name: name, first: t.key, key: at, from: start}
		if jobs := root.keys["jobs"]; jobs != nil && parent == jobs {
			s.open.kind = "job"
		}
	default:
		t.given, t.key, t.val = true, at, at
	}
	s.table = t
}

func (s *scanner) endTwin() {
	if s.open != nil {
		s.open.upTo = s.pos
		s.twins = append(s.twins, *s.open)
		s.open = nil
	}
}

// pair reads `a.b = value` into a table.
func (s *scanner) pair(table *place) {
	start := s.pos
	parent, name, at := s.path(table)
	s.skip('=')
	s.space()
	if first := parent.keys[name]; first != nil && first.given {
		s.value(&place{})
		s.twins = append(s.twins, twin{kind: "key", name: name, first: first.key, key: at, from: start, upTo: s.pos})
		return
	}
	p := parent.child(name, at)
	p.given = true
	s.value(p)
}

// path reads a dotted key. It returns the table that holds its last part, that part, and where it begins.
func (s *scanner) path(t *place) (parent *place, name string, at int) {
	for {
		s.space()
		at = s.pos
		name = s.word()
		s.space()
		if !s.skip('.') {
			return t, name, at
		}
		t = t.child(name, at).latest()
	}
}

// word reads one part of a key, bare or quoted.
func (s *scanner) word() string {
	if s.quoted() {
		var b strings.Builder
		s.pos = eachPiece(s.src, s.pos, func(_ int, piece string) { b.WriteString(piece) })
		return b.String()
	}
	start := s.pos
	s.until(" \t\r\n.=[]{}#\"',")
	return s.src[start:s.pos]
}

// value reads a value of any kind, and what is in it, into p.
func (s *scanner) value(p *place) {
	p.val = s.pos
	switch {
	case s.quoted():
		s.pos = eachPiece(s.src, s.pos, func(int, string) {})
	case s.skip('['):
		s.elements(']', func() {
			item := &place{key: s.pos}
			s.value(item)
			p.items = append(p.items, item)
		})
	case s.skip('{'):
		s.elements('}', func() { s.pair(p) })
	default: // a number, true, false, or a date, which may have a blank inside
		s.until(",]}#\r\n")
	}
}

// elements reads what stands between brackets, with commas, comments and line ends in between.
func (s *scanner) elements(end byte, one func()) {
	for s.blank(); s.pos < len(s.src) && !s.skip(end); s.blank() {
		start := s.pos
		if s.skip(',') {
			continue
		}
		if one(); s.pos == start {
			return // no TOML
		}
	}
}

func (s *scanner) quoted() bool {
	return s.pos < len(s.src) && (s.src[s.pos] == '"' || s.src[s.pos] == '\'')
}

// skip passes the given character and tells whether it was there.
func (s *scanner) skip(char byte) bool {
	if s.pos < len(s.src) && s.src[s.pos] == char {
		s.pos++
		return true
	}
	return false
}

// until goes to the first of the given characters.
func (s *scanner) until(chars string) {
	if n := strings.IndexAny(s.src[s.pos:], chars); n >= 0 {
		s.pos += n
	} else {
		s.pos = len(s.src)
	}
}

// space passes blanks within a line; blank passes line ends and comments as well.
func (s *scanner) space() {
	for s.skip(' ') || s.skip('\t') {
	}
}

func (s *scanner) blank() {
	for s.pos < len(s.src) && strings.IndexByte(" \t\r\n#", s.src[s.pos]) >= 0 {
		if s.src[s.pos] == '#' {
			s.until("\n")
		} else {
			s.pos++
		}
	}
}
