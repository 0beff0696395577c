package document

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

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
			for several && strings.HasPrefix(src[i+1:], quote) { // the value includes quotes before the last three
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

// writtenAt returns the offset in the text of byte n of the value of the string at pos.
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
