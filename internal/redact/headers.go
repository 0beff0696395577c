package redact

import (
	"regexp"
	"strings"
)

var (
	// header matches an HTTP header at the start of a word, up to its value. The word may begin with the option for the header.
	header = regexp.MustCompile(`^["']?(-H|--(?:proxy-)?header=)?["']?([A-Za-z0-9_.-]+):[ \t]*`)
	// scheme matches the text before the secret of an Authorization header.
	scheme = regexp.MustCompile(`^(?i:bearer|basic|digest|token)[ \t]+`)
	// bearer matches a token without the name of its header.
	bearer = regexp.MustCompile(`(?i)\b(bearer[ \t]+)[^\s"'$*;&|][^\s"';&|]*`)
	// member matches a member of a JSON object whose value is neither an object nor a list. Its quotes may be escaped.
	member = regexp.MustCompile(`\\?"[A-Za-z0-9_.-]+\\?"\s*:\s*(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|[^\s,}\]"{\[\\]+)`)
	// variable matches a value that consists only of variables and commands of a shell. The last one may be cut off at a quote. A variable with a
	// default value does not match.
	variable = regexp.MustCompile("^(?:\\$(?:\\w+|[@*#?!$-]|\\{\\w+(?::?\\?[^{}]*)?\\}|\\([^()]*(?:\\)|$))?|`[^`]*(?:`|$))+$")
)

// secretHeader reports whether the name of a header or a member is a usual name of a secret.
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

// maskMember masks the value of a member whose name is like a secret's.
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

// isSecretOf reports whether the value of a header must be masked.
func isSecretOf(name, value string) bool {
	return secretHeader(name) && value != "" && !isVariable(scheme.ReplaceAllString(value, ""))
}

// isVariable reports whether a value consists only of variables.
func isVariable(value string) bool { return variable.MatchString(value) }
