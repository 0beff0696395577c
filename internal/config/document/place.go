package document

// The TOML library reports no positions for the values that it decodes, and lets tables be defined twice in ways that TOML forbids. So a second,
// small reader finds the places of all keys and values, and second definitions. It follows keys, brackets and strings, and leaves all other judgement
// to the library. Its result for text that is no TOML is of no use, but does no harm.

// place is the position of a key or value, in bytes from the start of the text. It has the shape of the value.
type place struct {
	key   int               // where its key begins; for an element of a list, which has none, that is val
	val   int               // where its value begins; for a table with a header that is its key again
	form  form              // how it was defined
	given bool              // has a key or header of its own, and is not only a part of a longer key
	keys  map[string]*place // of a table
	items []*place          // of a list, and of a table in [[several]] parts
}

// form is how a key was defined, which decides whether more may be added to it.
type form int

const (
	implied form = iota // a table that longer headers have in their names: a header or keys may define it still
	headed              // a table with a header: only headers add tables to it
	dotted              // a table that dotted keys have made: dotted keys add to it, and headers add tables
	inline              // a table in braces: complete
	several             // a table in [[several]] parts: such headers add parts, and other headers tables to the last one
	plain               // a value, or a list in brackets: complete
)

// keyPart is one part of a dotted key, and where it begins.
type keyPart struct {
	name string
	at   int
}

// twin is a job, table or key that is defined a second time, or added to where that is complete.
type twin struct {
	kind, name string // kind is "job", "table" or "key"
	first, key int    // where its key is for the first and the second time
	from, upTo int    // where the second definition begins and ends
}

// child returns the place of a key in a table, and makes it where there is none yet.
func (p *place) child(name string, at int, f form) *place {
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

// latest returns the table that headers go on to fill: the last part of one in [[several]] parts.
func (p *place) latest() *place {
	if p.form != several {
		return p
	}
	return p.items[len(p.items)-1]
}

// set returns the place of a key in a table, by the path from there, or what that defines a second time.
func set(table *place, path []keyPart) (*place, *twin) {
	last := len(path) - 1
	for _, part := range path[:last] {
		table = table.child(part.name, part.at, dotted)
		switch table.form {
		case implied:
			table.form = dotted
		case dotted:
		default:
			return nil, table.again(part)
		}
	}
	if first := table.keys[path[last].name]; first != nil {
		again := first.again(path[last])
		again.kind = "key"
		return nil, again
	}
	p := table.child(path[last].name, path[last].at, plain)
	p.given = true
	return p, nil
}

// openTable returns the table of a header, or what that defines a second time.
func openTable(root *place, path []keyPart) (*place, *twin) {
	last := path[len(path)-1]
	parent, again := descend(root, path)
	if again != nil {
		return nil, again
	}
	t := parent.child(last.name, last.at, implied)
	if t.form != implied {
		again := t.again(last)
		if jobs := root.keys["jobs"]; jobs != nil && parent == jobs && t.form != plain {
			again.kind = "job"
		}
		return nil, again
	}
	t.form, t.given, t.key, t.val = headed, true, last.at, last.at
	return t, nil
}

// openPart returns the table of a header in double brackets, or what that defines a second time.
func openPart(root *place, path []keyPart) (*place, *twin) {
	last := path[len(path)-1]
	parent, again := descend(root, path)
	if again != nil {
		return nil, again
	}
	t := parent.child(last.name, last.at, several)
	if t.form != several {
		return nil, t.again(last)
	}
	part := &place{key: last.at, val: last.at, form: headed}
	t.items, t.given = append(t.items, part), true
	return part, nil
}

// descend returns the table that holds the last part of a header's path.
func descend(t *place, path []keyPart) (*place, *twin) {
	for _, part := range path[:len(path)-1] {
		c := t.child(part.name, part.at, implied)
		if c.form == inline || c.form == plain {
			return nil, c.again(part)
		}
		t = c.latest()
	}
	return t, nil
}

// again is the second definition of this place, where a part of a key names it.
func (p *place) again(part keyPart) *twin {
	kind := "table"
	if p.form == plain {
		kind = "key"
	}
	return &twin{kind: kind, name: part.name, first: p.key, key: part.at}
}
