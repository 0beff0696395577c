package document

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"
)

type scanner struct {
	src     string
	pos     int
	bounds  *Bounds
	depth   int       // number of brackets around pos
	context int       // cost of the names of the tables around pos, as readDotted returns it
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

// readDotted reads a key into s.path. It returns the cost of the key in the sum that maxKeyBytes limits: its length, plus partCost for each part.
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
			return // the text is not TOML; without the return, this loop would not end
		}
	}
}

func (s *scanner) atQuote() bool {
	return s.pos < len(s.src) && (s.src[s.pos] == '"' || s.src[s.pos] == '\'')
}

func (s *scanner) skipChar(char byte) bool {
	if s.pos < len(s.src) && s.src[s.pos] == char {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) skipUntil(chars string) {
	if n := strings.IndexAny(s.src[s.pos:], chars); n >= 0 {
		s.pos += n
	} else {
		s.pos = len(s.src)
	}
}

func (s *scanner) skipSpace() {
	for s.skipChar(' ') || s.skipChar('\t') {
	}
}

func (s *scanner) skipBlank() {
	for s.pos < len(s.src) && strings.IndexByte(" \t\r\n#", s.src[s.pos]) >= 0 {
		if s.src[s.pos] == '#' {
			s.skipUntil("\n")
		} else {
			s.pos++
		}
	}
}

type excess struct {
	at      int
	message string
}

func (s *scanner) spendValues(at, values, keyBytes int) {
	if message := s.bounds.spendValues(values, keyBytes); message != "" {
		s.stopAt(at, message)
	}
}

// stopAt records that a limit was exceeded and ends the scan. Only the first such call is recorded.
func (s *scanner) stopAt(at int, message string) {
	s.excess = cmp.Or(s.excess, &excess{at, message})
	s.pos = len(s.src)
}

// eachPiece reads a TOML string of any of the four kinds. pos is the offset of its first quote. eachPiece calls visit with each piece of the value (usually
// one character) and the offset of the piece in the text. It returns the end of the string.
func eachPiece(src string, pos int, visit func(at int, piece string)) int {
	quote := src[pos : pos+1]
	several := strings.HasPrefix(src[pos:], strings.Repeat(quote, 3))
	if several {
		quote = strings.Repeat(quote, 3)
	}
	i := pos + len(quote)
	if several { // the value does not include a line end immediately after the opening quotes
		i += len(src[i:]) - len(strings.TrimPrefix(strings.TrimPrefix(src[i:], "\r"), "\n"))
	}
	for i < len(src) && (several || src[i] != '\n') {
		piece, n := "", 0
		switch {
		case strings.HasPrefix(src[i:], quote):
			for several && strings.HasPrefix(src[i+1:], quote) { // only the last three quotes end the string; the quotes before them belong to the value
				visit(i, quote[:1])
				i++
			}
			return i + len(quote)
		case src[i] == '\\' && quote[0] == '"':
			piece, n = readEscape(src[i:])
		default:
			_, n = utf8.DecodeRuneInString(src[i:])
			piece = src[i : i+n]
		}
		visit(i, piece)
		i += n
	}
	return i
}

// readEscape reads the escape sequence at the start of s. It returns the value and the length of the sequence. For a backslash at the end of a line, the
// value is empty, and the sequence includes all blanks and line ends that follow.
func readEscape(s string) (piece string, n int) {
	if len(s) < 2 {
		return "", len(s)
	}
	if i := strings.IndexByte(`btnfre"\`, s[1]); i >= 0 {
		return "\b\t\n\f\r\x1b\"\\"[i : i+1], 2
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	if digits == 0 {
		return "", 1 + len(s[1:]) - len(strings.TrimLeft(s[1:], " \t\r\n"))
	}
	if code, err := strconv.ParseUint(s[2:min(len(s), 2+digits)], 16, 32); err == nil {
		return string(rune(code)), min(len(s), 2+digits)
	}
	return "", 2
}

// writtenAt returns the offset in src at which byte n of a string's value is written. pos is the offset of the string.
func writtenAt(src string, pos, n int) int {
	at, seen := pos, 0
	end := eachPiece(src, pos, func(i int, piece string) {
		if seen <= n {
			at = i
		}
		seen += len(piece)
	})
	if n >= seen { // after the last byte: the closing quotes
		at = end - 1
		if end-pos >= 6 && strings.HasPrefix(src[pos:], strings.Repeat(src[pos:pos+1], 3)) {
			at = end - 3
		}
	}
	return max(at, pos)
}

// The scanner finds duplicate definitions, because the TOML library accepts some duplicates that TOML forbids. The scanner follows keys, brackets and strings,
// and leaves everything else to the library. Its result for text that is not TOML is useless, but harmless.

// place is the position of a key and its value, as byte offsets in the text. It has the same structure as the value.
type place struct {
	key   int // start of the key; for an element of a list, which has no key, the same as val
	val   int // start of the value; for a table with a header, the same as key
	form  form
	given bool              // whether the table has its own key or header, and does not only occur as a part of a longer key
	keys  map[string]*place // places of the keys of a table
	items []*place          // places of the elements of a list, or of the tables of an array of tables ([[name]])
}

// form is the syntax that defined a key. It determines what later text may add to the key.
type form int

const (
	implied form = iota // a table that is only a part of a longer header: a header or keys may still define it
	headed              // a table with its own header: only headers add tables to it
	dotted              // a table that dotted keys define: more dotted keys may add to it, and headers may add tables
	inline              // a table in braces: nothing may be added
	several             // an array of tables ([[name]]): another such header adds a table to the array, and [name.key] adds a table to the last one
	plain               // a value, or a list in brackets: nothing may be added
)

// keyPart is one part of a dotted key, with its byte offset.
type keyPart struct {
	name string
	at   int
}

// twin is a duplicate definition of a job, table or key, or an addition to a table that must not be extended.
type twin struct {
	kind, name string // kind is "job", "table" or "key"
	first, key int    // byte offsets of the first and of the second key
	from, upTo int    // byte offsets of the start and the end of the duplicate definition
}

// childPlace returns the place of a key in a table. If the table lacks the key, childPlace adds a place with the form f.
func (p *place) childPlace(name string, at int, f form) *place {
	if c := p.keys[name]; c != nil {
		return c
	}
	if p.keys == nil {
		p.keys = make(map[string]*place)
	}
	c := &place{key: at, val: at, form: f}
	p.keys[name] = c
	return c
}

// latestTable returns the table to which headers add keys. In an array of tables ([[name]]) it is the last table.
func (p *place) latestTable() *place {
	if p.form != several {
		return p
	}
	return p.items[len(p.items)-1]
}

// setKey adds a key to a table and returns its place. path is relative to the table. For a key that is defined already, setKey returns a twin.
func setKey(table *place, path []keyPart) (*place, *twin) {
	last := len(path) - 1
	for _, part := range path[:last] {
		table = table.childPlace(part.name, part.at, dotted)
		switch table.form {
		case implied:
			table.form = dotted
		case dotted:
		default:
			return nil, table.secondDefinition(part)
		}
	}
	if first := table.keys[path[last].name]; first != nil {
		again := first.secondDefinition(path[last])
		again.kind = "key"
		return nil, again
	}
	p := table.childPlace(path[last].name, path[last].at, plain)
	p.given = true
	return p, nil
}

// openTable returns the table of a header. If the table is defined already, it returns a twin.
func openTable(root *place, path []keyPart) (*place, *twin) {
	last := path[len(path)-1]
	parent, again := parentTable(root, path)
	if again != nil {
		return nil, again
	}
	t := parent.childPlace(last.name, last.at, implied)
	if t.form != implied {
		again := t.secondDefinition(last)
		if jobs := root.keys["jobs"]; jobs != nil && parent == jobs && t.form != plain {
			again.kind = "job"
		}
		return nil, again
	}
	t.form, t.given, t.key, t.val = headed, true, last.at, last.at
	return t, nil
}

// openPart adds a table to an array of tables, for a header [[name]]. If the name is defined in another form already, openPart returns a twin.
func openPart(root *place, path []keyPart) (*place, *twin) {
	last := path[len(path)-1]
	parent, again := parentTable(root, path)
	if again != nil {
		return nil, again
	}
	t := parent.childPlace(last.name, last.at, several)
	if t.form != several {
		return nil, t.secondDefinition(last)
	}
	part := &place{key: last.at, val: last.at, form: headed}
	t.items, t.given = append(t.items, part), true
	return part, nil
}

// parentTable returns the table that contains the last part of a header's path. It returns a twin if the path leads into an inline table or a plain value.
func parentTable(t *place, path []keyPart) (*place, *twin) {
	for _, part := range path[:len(path)-1] {
		c := t.childPlace(part.name, part.at, implied)
		if c.form == inline || c.form == plain {
			return nil, c.secondDefinition(part)
		}
		t = c.latestTable()
	}
	return t, nil
}

func (p *place) secondDefinition(part keyPart) *twin {
	kind := "table"
	if p.form == plain {
		kind = "key"
	}
	return &twin{kind: kind, name: part.name, first: p.key, key: part.at}
}
