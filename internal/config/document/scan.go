package document

import "strings"

// scanner finds the places of keys and values in TOML text.
type scanner struct {
	src     string
	pos     int
	bounds  *Bounds
	depth   int       // of brackets around pos
	context int       // cost of the names of the tables around pos
	path    []keyPart // the key that was read last
	table   *place    // the table that the last header opened
	twins   []twin
	open    *twin // a table whose header is a second definition, until the next header
	drops   int   // number of second definitions around pos
	excess  *excess
}

// scan returns the place of the whole text, and its second definitions in the order of the text. No second definition is inside another one. The scan
// ends when a limit is exceeded.
func scan(src string, b *Bounds) (*place, []twin, *excess) {
	root := &place{form: headed}
	s := &scanner{src: src, bounds: b, table: root}
	for s.blank(); s.pos < len(src); s.blank() {
		start := s.pos
		if src[s.pos] == '[' {
			s.header(root)
		} else {
			s.pair(s.table)
		}
		if s.pos == start {
			s.pos++ // not TOML: continue after it
		}
	}
	s.endTwin()
	return root, s.twins, s.excess
}

// header reads [a.b] or [[a.b]] and opens that table.
func (s *scanner) header(root *place) {
	s.endTwin()
	s.context = 0
	start := s.pos
	s.skip('[')
	open := openTable
	if s.skip('[') {
		open = openPart
		defer s.skip(']')
	}
	s.spend(start, 1, 0)
	s.context = s.dotted()
	s.skip(']')
	var again *twin
	if s.table, again = open(root, s.path); again != nil { // ignore the content of the table
		again.from = start
		s.open, s.table = again, &place{form: headed}
	}
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
	cost := s.dotted()
	s.skip('=')
	s.space()
	s.context += cost
	defer func() { s.context -= cost }()
	p, again := set(table, s.path)
	if again == nil {
		s.value(p)
		return
	}
	s.drops++
	s.value(&place{})
	s.drops--
	if s.drops == 0 && s.open == nil {
		again.from, again.upTo = start, s.pos
		s.twins = append(s.twins, *again)
	}
}

// dotted reads a key into s.path, and returns its cost.
func (s *scanner) dotted() (cost int) {
	start := s.pos
	s.path = s.path[:0]
	for more := true; more; more = s.skip('.') {
		s.space()
		at := s.pos
		s.path = append(s.path, keyPart{s.word(), at})
		s.space()
		switch {
		case len(s.path) > maxParts:
			s.exceed(start, tooManyParts)
			return 0
		case len(s.path[len(s.path)-1].name) > maxKey:
			s.exceed(at, keyTooLong)
			return 0
		}
	}
	cost = s.pos - start + partCost*len(s.path)
	s.spend(start, 0, (s.context+cost)*len(s.path))
	return cost
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

// value reads a value and the values inside it into p.
func (s *scanner) value(p *place) {
	p.val, p.form = s.pos, plain
	s.spend(s.pos, 1, 0)
	s.depth++
	defer func() { s.depth-- }()
	switch {
	case s.depth > maxDepth:
		s.exceed(s.pos, tooDeep)
	case s.quoted():
		s.pos = eachPiece(s.src, s.pos, func(int, string) {})
		if s.pos-p.val > maxString {
			s.exceed(p.val, textTooLong)
		}
	case s.skip('['):
		s.elements(']', func() {
			item := &place{key: s.pos}
			s.value(item)
			p.items = append(p.items, item)
		})
	case s.skip('{'):
		p.form = inline
		s.elements('}', func() { s.pair(p) })
	default: // a number, a boolean, or a date, which may contain a blank
		s.until(",]}#\r\n")
	}
}

// elements reads the elements between brackets, with commas, comments and line ends in between.
func (s *scanner) elements(end byte, one func()) {
	for s.blank(); s.pos < len(s.src) && !s.skip(end); s.blank() {
		start := s.pos
		if s.skip(',') {
			continue
		}
		if one(); s.pos == start {
			return // not TOML
		}
	}
}

func (s *scanner) quoted() bool {
	return s.pos < len(s.src) && (s.src[s.pos] == '"' || s.src[s.pos] == '\'')
}

// skip moves past a character, and reports whether it was there.
func (s *scanner) skip(char byte) bool {
	if s.pos < len(s.src) && s.src[s.pos] == char {
		s.pos++
		return true
	}
	return false
}

// until moves to the first of the given characters.
func (s *scanner) until(chars string) {
	if n := strings.IndexAny(s.src[s.pos:], chars); n >= 0 {
		s.pos += n
	} else {
		s.pos = len(s.src)
	}
}

// space moves past blanks in a line.
func (s *scanner) space() {
	for s.skip(' ') || s.skip('\t') {
	}
}

// blank moves past blanks, line ends and comments.
func (s *scanner) blank() {
	for s.pos < len(s.src) && strings.IndexByte(" \t\r\n#", s.src[s.pos]) >= 0 {
		if s.src[s.pos] == '#' {
			s.until("\n")
		} else {
			s.pos++
		}
	}
}

// excess is an exceeded limit and its place.
type excess struct {
	at      int
	message string
}

// spend accounts for values and for the cost of their keys.
func (s *scanner) spend(at, values, keyBytes int) {
	if message := s.bounds.spend(values, keyBytes); message != "" {
		s.exceed(at, message)
	}
}

// exceed records the first exceeded limit and ends the scan.
func (s *scanner) exceed(at int, message string) {
	if s.excess == nil {
		s.excess = &excess{at, message}
	}
	s.pos = len(s.src)
}
