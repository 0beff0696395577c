package dashboard

import (
	"regexp"
	"strings"
	"unicode"
)

// escapes matches the sequences that terminals interpret: those that end with a letter, strings such as titles, and single letters. A string must be short
// and within a line. Otherwise only its beginning is removed, because it would take the rest of the output with it.
var escapes = regexp.MustCompile(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|\x1b(?:[\]P^_X](?:[^\x07\x1b\n]{0,256}(?:\x07|\x1b\\))?|[ -/]*[0-~])?`)

// cleanText returns a foreign text in the form in which a page may show it: without terminal sequences, control characters, characters that change the direction
// of writing, and invalid bytes. Of a line only the part after its last carriage return remains, as on a terminal. The templates escape it for HTML.
func cleanText(text string) string {
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
