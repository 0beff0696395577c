package redact

import (
	"regexp"
	"strings"
)

var (
	// header is the name of one of HTTP at the begin of a word, behind the option in the same word, if any, up to its value.
	header = regexp.MustCompile(`^["']?(-H|--(?:proxy-)?header=)?["']?([A-Za-z0-9_.-]+):[ \t]*`)
	// scheme stands before the secret of an Authorization header.
	scheme = regexp.MustCompile(`^(?i:bearer|basic|digest|token)[ \t]+`)
	// bearer is a token that stands without the name of its header.
	bearer = regexp.MustCompile(`(?i)\b(bearer[ \t]+)[^\s"'$*;&|][^\s"';&|]*`)
	// member is one of a JSON object, whose quotes may be escaped. Its value is no object or list.
	member = regexp.MustCompile(`\\?"[A-Za-z0-9_.-]+\\?"\s*:\s*(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|[^\s,}\]"{\[\\]+)`)
	// variable is a value that has nothing but variables and commands of a shell, of which the last may be cut at a quote. One with a default value is none.
	variable = regexp.MustCompile("^(?:\\$(?:\\w+|[@*#?!$-]|\\{\\w+(?::?\\?[^{}]*)?\\}|\\([^()]*(?:\\)|$))?|`[^`]*(?:`|$))+$")
)

// secretHeader returns whether a header or a member has a secret, by the usual names.
func secretHeader(name string) bool {
	name = strings.ToLower(wordOf(name))
	return SecretName(strings.ReplaceAll(name, ".", "_")) || strings.Contains(name, "authorization") || name == "cookie" || name == "set_cookie"
}

// withoutHeaders masks the values of JSON members, options, headers and logins in a text.
func withoutHeaders(text string) string {
	if strings.Contains(text, ":") {
		text = member.ReplaceAllStringFunc(text, maskMember)
	}
	return bearer.ReplaceAllString(withoutWords(text), "${1}"+Mask)
}

// maskMember masks the value of a member with a name like a secret's.
func maskMember(text string) string {
	at := member.FindStringSubmatchIndex(text)[2]
	name, _, _ := strings.Cut(text, ":")
	value := text[at:]
	if !secretHeader(strings.Trim(name, "\\\" \t\n")) || isVariable(strings.Trim(value, `\"`)) {
		return text
	}
	quote := ""
	for _, q := range []string{`\"`, `"`} {
		if strings.HasPrefix(value, q) {
			quote = q
			break
		}
	}
	return text[:at] + quote + Mask + quote
}

// isSecretOf returns whether the value of a header must not be shown.
func isSecretOf(name, value string) bool {
	return secretHeader(name) && value != "" && !isVariable(scheme.ReplaceAllString(value, ""))
}

// isVariable returns whether variables stand in place of a value.
func isVariable(value string) bool { return variable.MatchString(value) }
