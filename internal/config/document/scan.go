package document

import "strings"

// scanner finds the places of keys and values in TOML text.
type scanner struct {
	src     string
	pos     int
	bounds  *Bounds
	depth   int       // number of brackets around pos
	context int       // cost of the names of the tables around pos
	path    []keyPart // the last key that was read
	table   *place    // the table of the last header
	twins   []twin
	open    *twin // a table whose header is a duplicate; set until the next header
	drops   int   // number of duplicate definitions around pos
	excess  *excess
}

// scanText returns the place of the whole text, and the duplicate definitions in text order. Duplicate definitions are not nested. The scan ends when a limit
// is exceeded.
func scanText(src string, b *Bounds) (*place, []twin, *excess) {
	root := &place{form: headed}
	s := &scanner{src: src, bounds: b, table: root}
	for s.skipBlank(); s.pos < len(src); s.skipBlank() {
		start := s.pos
		if src[s.pos] == '[' {
			s.readHeader(root)
		} else {
			s.readPair(s.table)
		}
		if s.pos == start {
			s.pos++ // not TOML: continue at the next byte
		}
	}
	s.endTwin()
	return root, s.twins, s.excess
}

// readHeader reads [a.b] or [[a.b]] and makes its table the current one.
func (s *scanner) readHeader(root *place) {
	s.endTwin()
	s.context = 0
	start := s.pos
	s.skipChar('[')
	open := openTable
	if s.skipChar('[') {
		open = openPart
		defer s.skipChar(']')
	}
	s.spendValues(start, 1, 0)
	s.context = s.readDotted()
	s.skipChar(']')
	var again *twin
	if s.table, again = open(root, s.path); again != nil { // ignore the content of a duplicate table
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

// readPair reads `a.b = value` and adds it to a table.
func (s *scanner) readPair(table *place) {
	start := s.pos
	cost := s.readDotted()
	s.skipChar('=')
	s.skipSpace()
	s.context += cost
	defer func() { s.context -= cost }()
	p, again := setKey(table, s.path)
	if again == nil {
		s.readValue(p)
		return
	}
	s.drops++
	s.readValue(&place{})
	s.drops--
	if s.drops == 0 && s.open == nil {
		again.from, again.upTo = start, s.pos
		s.twins = append(s.twins, *again)
	}
}

// readDotted reads a key into s.path, and returns its cost.
func (s *scanner) readDotted() (cost int) {
	start := s.pos
	s.path = s.path[:0]
	for more := true; more; more = s.skipChar('.') {
		s.skipSpace()
		at := s.pos
		s.path = append(s.path, keyPart{s.readWord(), at})
		s.skipSpace()
		switch {
		case len(s.path) > maxParts:
			s.stopAt(start, tooManyParts)
			return 0
		case len(s.path[len(s.path)-1].name) > maxKey:
			s.stopAt(at, keyTooLong)
			return 0
		}
	}
	cost = s.pos - start + partCost*len(s.path)
	s.spendValues(start, 0, (s.context+cost)*len(s.path))
	return cost
}

// readWord reads one part of a key, bare or quoted.
func (s *scanner) readWord() string {
	if s.atQuote() {
		var b strings.Builder
		s.pos = eachPiece(s.src, s.pos, func(_ int, piece string) { b.WriteString(piece) })
		return b.String()
	}
	start := s.pos
	s.skipUntil(" \t\r\n.=[]{}#\"',")
	return s.src[start:s.pos]
}

// readValue reads a value and the values inside it into p.
func (s *scanner) readValue(p *place) {
	p.val, p.form = s.pos, plain
	s.spendValues(s.pos, 1, 0)
	s.depth++
	defer func() { s.depth-- }()
	switch {
	case s.depth > maxDepth:
		s.stopAt(s.pos, tooDeep)
	case s.atQuote():
		s.pos = eachPiece(s.src, s.pos, func(int, string) {})
		if s.pos-p.val > maxString {
			s.stopAt(p.val, textTooLong)
		}
	case s.skipChar('['):
		s.readElements(']', func() {
			item := &place{key: s.pos}
			s.readValue(item)
			p.items = append(p.items, item)
		})
	case s.skipChar('{'):
		p.form = inline
		s.readElements('}', func() { s.readPair(p) })
	default: // a number, a boolean, or a date, which may contain a blank
		s.skipUntil(",]}#\r\n")
	}
}

// readElements reads the elements up to the closing bracket. Commas, comments and line ends may separate them.
func (s *scanner) readElements(end byte, one func()) {
	for s.skipBlank(); s.pos < len(s.src) && !s.skipChar(end); s.skipBlank() {
		start := s.pos
		if s.skipChar(',') {
			continue
		}
		if one(); s.pos == start {
			return // not TOML
		}
	}
}

func (s *scanner) atQuote() bool {
	return s.pos < len(s.src) && (s.src[s.pos] == '"' || s.src[s.pos] == '\'')
}

// skipChar moves past a character and reports whether it was next.
func (s *scanner) skipChar(char byte) bool {
	if s.pos < len(s.src) && s.src[s.pos] == char {
		s.pos++
		return true
	}
	return false
}

// skipUntil moves to the next of the given characters, or to the end of the text.
func (s *scanner) skipUntil(chars string) {
	if n := strings.IndexAny(s.src[s.pos:], chars); n >= 0 {
		s.pos += n
	} else {
		s.pos = len(s.src)
	}
}

// skipSpace moves past blanks in a line.
func (s *scanner) skipSpace() {
	for s.skipChar(' ') || s.skipChar('\t') {
	}
}

// skipBlank moves past blanks, line ends and comments.
func (s *scanner) skipBlank() {
	for s.pos < len(s.src) && strings.IndexByte(" \t\r\n#", s.src[s.pos]) >= 0 {
		if s.src[s.pos] == '#' {
			s.skipUntil("\n")
		} else {
			s.pos++
		}
	}
}

// excess is the first limit that was exceeded, with its place.
type excess struct {
	at      int
	message string
}

// spendValues subtracts values and the cost of their keys from the budget.
func (s *scanner) spendValues(at, values, keyBytes int) {
	if message := s.bounds.spendValues(values, keyBytes); message != "" {
		s.stopAt(at, message)
	}
}

// stopAt records that a limit was exceeded and ends the scan. Only the first such call is recorded.
func (s *scanner) stopAt(at int, message string) {
	if s.excess == nil {
		s.excess = &excess{at, message}
	}
	s.pos = len(s.src)
}
