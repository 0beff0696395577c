package document

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// text is the content of a file. It converts byte offsets to lines and columns.
type text struct {
	string
	lines []int // byte offset of the start of each line
	chars []int // number of characters before each block of stride bytes
}

// stride is the block size of text.chars in bytes. Without blocks, each lookup in a long line would count the characters of the whole line.
const stride = 1 << 10

func newText(s string) text {
	t := text{string: strings.TrimPrefix(s, "\ufeff"), lines: []int{0}}
	chars := 0
	for i := range len(t.string) {
		if i%stride == 0 {
			t.chars = append(t.chars, chars)
		}
		if utf8.RuneStart(t.string[i]) {
			chars++
		}
		if t.string[i] == '\n' {
			t.lines = append(t.lines, i+1)
		}
	}
	return t
}

// charsBefore returns the number of characters that begin before a byte offset.
func (t text) charsBefore(at int) int {
	if len(t.chars) == 0 {
		return 0
	}
	from := min(at/stride, len(t.chars)-1)
	n := t.chars[from]
	for i := from * stride; i < at; i++ {
		if utf8.RuneStart(t.string[i]) {
			n++
		}
	}
	return n
}

// lineAndColumn converts a byte offset to a line and a column. Both count from 1; columns count characters.
func (t text) lineAndColumn(at int) (line, column int) {
	at = min(max(at, 0), len(t.string))
	line, found := slices.BinarySearch(t.lines, at)
	if !found {
		line-- // at is inside a line, which begins before at
	}
	return line + 1, t.charsBefore(at) - t.charsBefore(t.lines[line]) + 1
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1. It also finds a second byte order mark at the start, and byte order marks of
// other encodings, which the TOML library would drop.
func (t text) invalidUTF8() int {
	for at := 0; at < len(t.string); {
		r, n := utf8.DecodeRuneInString(t.string[at:])
		if r == utf8.RuneError && n == 1 || r == '\ufeff' && at == 0 {
			return at
		}
		at += n
	}
	return -1
}

// withoutTwins replaces duplicate definitions by blanks, so that all other positions stay the same. In an inline table it also replaces the comma after the
// definition.
func (t text) withoutTwins(twins []twin) string {
	if len(twins) == 0 {
		return t.string
	}
	blank := []byte(t.string)
	for _, twin := range twins {
		upTo := twin.upTo
		if rest := strings.TrimLeft(t.string[upTo:], " \t"); strings.HasPrefix(rest, ",") {
			upTo = len(blank) - len(rest) + 1
		}
		for i := twin.from; i < upTo; i++ {
			if blank[i] != '\n' {
				blank[i] = ' '
			}
		}
	}
	return string(blank)
}
