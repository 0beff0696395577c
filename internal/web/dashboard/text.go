package dashboard

import (
	"regexp"
	"strings"
	"unicode"
)

// escapes matches terminal escape sequences: control sequences, strings such as window titles, and sequences of few characters. A string may have at most 256
// characters in one line. If it is longer, only its introducer matches, because otherwise an unterminated string would remove the rest of the output.
var escapes = regexp.MustCompile(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|\x1b(?:[\]P^_X](?:[^\x07\x1b\n]{0,256}(?:\x07|\x1b\\))?|[ -/]*[0-~])?`)

// cleanText returns text from outside as a page may show it. It removes escape sequences, control characters and characters that change the direction of
// writing, and replaces invalid bytes. Of each line it keeps only the part after the last carriage return, as a terminal does. The templates escape the text
// for HTML.
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
