package logging

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// MaxJSONLine bounds a line of a JSON log, with its newline: container runtimes split longer ones.
const MaxJSONLine = 16<<10 - 1

// fitting returns the length of the longest beginning of a text that takes no more than so many bytes in JSON, and ends with a whole character.
func fitting(text string, most int) int {
	for i, r := range text {
		switch {
		case r == '"' || r == '\\' || r == '\t' || r == '\n' || r == '\r':
			most -= 2
		case r < ' ' || r == '\u2028' || r == '\u2029' || r == utf8.RuneError:
			most -= 6 // \u001b
		default:
			most -= utf8.RuneLen(r)
		}
		if most < 0 {
			return i
		}
	}
	return len(text)
}

// shorten cuts the texts of a JSON line that is longer than MaxJSONLine, the longest first. A line that cannot be read stays as it is.
func shorten(line []byte) []byte {
	if len(line) <= MaxJSONLine {
		return line
	}
	var keys map[string]any
	if json.Unmarshal(line, &keys) != nil {
		return line
	}
	for most := MaxJSONLine / 2; most > 0; most /= 2 {
		for name, value := range keys {
			if text, ok := value.(string); ok && fitting(text, most) < len(text) {
				keys[name] = text[:fitting(text, most)] + "…"
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
