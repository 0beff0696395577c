package document

// The TOML library reports no positions for the values that it decodes, and accepts some second definitions of tables that TOML forbids. So a small
// scanner finds the places of all keys and values, and second definitions. It follows keys, brackets and strings, and leaves everything else to the
// library. Its result for text that is not TOML is useless, but harmless.

// place is the position of a key and its value, as byte offsets in the text. It has the same structure as the value.
type place struct {
	key   int // start of the key; for an element of a list, which has no key, the same as val
	val   int // start of the value; for a table with a header, the same as key
	form  form
	given bool              // whether the table has its own key or header, and does not only occur as a part of a longer key
	keys  map[string]*place // places of the keys of a table
	items []*place          // places of the elements of a list, or of the parts of a table in [[several]] parts
}

// form is the syntax that defined a key. It determines what later text may add to the key.
type form int

const (
	implied form = iota // a table that is only a part of a longer header: a header or keys may still define it
	headed              // a table with its own header: only headers add tables to it
	dotted              // a table that dotted keys define: more dotted keys may add to it, and headers may add tables
	inline              // a table in braces: nothing may be added
	several             // a table in [[several]] parts: more such headers add parts, other headers add tables to the last part
	plain               // a value, or a list in brackets: nothing may be added
)

// keyPart is one part of a dotted key, with its byte offset.
type keyPart struct {
	name string
	at   int
}

// twin is a duplicate definition of a job, table or key, or an addition to a complete one.
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

// latestTable returns the table to which headers add keys. For a table in [[several]] parts it is the last part.
func (p *place) latestTable() *place {
	if p.form != several {
		return p
	}
	return p.items[len(p.items)-1]
}

// setKey adds a key to a table and returns its place. path is relative to the table. If the key is defined already, setKey returns a twin.
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

// openPart adds a part for a header in double brackets. If the key is defined in another form already, it returns a twin.
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

// parentTable returns the table that contains the last part of a header's path. It returns a twin if a part of the path is a complete value.
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

// secondDefinition returns a twin for another key that defines this place again.
func (p *place) secondDefinition(part keyPart) *twin {
	kind := "table"
	if p.form == plain {
		kind = "key"
	}
	return &twin{kind: kind, name: part.name, first: p.key, key: part.at}
}
