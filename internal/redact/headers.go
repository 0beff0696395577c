package redact

import (
	"regexp"
	"strings"
)

var (
	// header matches the name of an HTTP header at the start of a word, with the colon. The word may begin with the option that takes the header.
	header = regexp.MustCompile(`^["']?(-H|--(?:proxy-)?header=)?["']?([A-Za-z0-9_.-]+):[ \t]*`)
	// scheme matches the authentication scheme before the secret of an Authorization header.
	scheme = regexp.MustCompile(`^(?i:bearer|basic|digest|token)[ \t]+`)
	// bearer matches a bearer token without the name of its header.
	bearer = regexp.MustCompile(`(?i)\b(bearer[ \t]+)[^\s"'$*;&|][^\s"';&|]*`)
	// member matches a member of a JSON object whose value is not an object or a list. The quotes may be escaped.
	member = regexp.MustCompile(`\\?"[A-Za-z0-9_.-]+\\?"\s*:\s*(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|[^\s,}\]"{\[\\]+)`)
	// variable matches a value that consists only of shell variables and command substitutions. The last one may be incomplete, because a quote ended the
	// word. A variable with a default value does not match.
	variable = regexp.MustCompile("^(?:\\$(?:\\w+|[@*#?!$-]|\\{\\w+(?::?\\?[^{}]*)?\\}|\\([^()]*(?:\\)|$))?|`[^`]*(?:`|$))+$")
)

// secretHeader reports whether a header or member with this name usually holds a secret.
func secretHeader(name string) bool {
	name = strings.ToLower(wordOf(name))
	return SecretName(strings.ReplaceAll(name, ".", "_")) || strings.Contains(name, "authorization") || name == "cookie" || name == "set_cookie"
}

// withoutHeaders masks the secret values of JSON members, options, headers and logins in a text.
func withoutHeaders(text string) string {
	if strings.Contains(text, ":") {
		text = member.ReplaceAllStringFunc(text, maskMember)
	}
	return bearer.ReplaceAllString(withoutWords(text), "${1}"+Mask)
}

// maskMember masks the value of a JSON member whose name suggests a secret.
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

// isSecretOf reports whether the value of the header name must be masked.
func isSecretOf(name, value string) bool {
	return secretHeader(name) && value != "" && !isVariable(scheme.ReplaceAllString(value, ""))
}

// isVariable reports whether a value consists only of shell variables and command substitutions.
func isVariable(value string) bool { return variable.MatchString(value) }
