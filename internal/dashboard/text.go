package dashboard

import (
	"regexp"
	"strings"
	"unicode"
)

// escapes are sequences that terminals obey: those that end with a letter, strings such as titles, and single letters. A string is short, and within a line:
// else its beginning alone is removed, as it would take the rest of an output with it.
var escapes = regexp.MustCompile(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|\x1b(?:[\]P^_X](?:[^\x07\x1b\n]{0,256}(?:\x07|\x1b\\))?|[ -/]*[0-~])?`)

// clean is a text of others as a page may show it: without terminal sequences, control characters, characters that change the direction of writing,
// and bytes that are no characters. Only the part of a line behind its last carriage return is left, as on a terminal. It is not escaped for HTML,
// which templates do.
func clean(text string) string {
	text = escapes.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if strings.Contains(text, "\r") {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			line = strings.TrimRight(line, "\r")
			lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
		}
		text = strings.Join(lines, "\n")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return -1
		}
		return r
	}, text)
}
