package logging

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// MaxJSONLine is the maximum length of a line of a JSON log in bytes, including the newline. Container runtimes split longer lines.
const MaxJSONLine = 16<<10 - 1

// fittingLength returns the length of the longest prefix of text that takes up to most bytes in JSON. The prefix ends with a whole character.
func fittingLength(text string, most int) int {
	for i, r := range text {
		switch {
		case r == '"' || r == '\\' || r == '\t' || r == '\n' || r == '\r':
			most -= 2
		case r < ' ' || r == '\u2028' || r == '\u2029' || r == utf8.RuneError:
			most -= 6 // written as an escape sequence such as \u001b
		default:
			most -= utf8.RuneLen(r)
		}
		if most < 0 {
			return i
		}
	}
	return len(text)
}

// shortenLine shortens the longest values of a JSON line until the line has at most MaxJSONLine bytes. If it can't parse the line, it returns the line
// unchanged.
func shortenLine(line []byte) []byte {
	if len(line) <= MaxJSONLine {
		return line
	}
	var keys map[string]any
	if json.Unmarshal(line, &keys) != nil {
		return line
	}
	for most := MaxJSONLine / 2; most > 0; most /= 2 {
		for name, value := range keys {
			if text, ok := value.(string); ok && fittingLength(text, most) < len(text) {
				keys[name] = text[:fittingLength(text, most)] + "…"
			}
		}
		var short bytes.Buffer
		encoder := json.NewEncoder(&short)
		encoder.SetEscapeHTML(false)
		if encoder.Encode(keys) != nil {
			return line
		}
		if short.Len() <= MaxJSONLine {
			return short.Bytes()
		}
	}
	return line
}
