package config

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	variable     = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// expansion is a string value with its variables replaced.
type expansion struct {
	text    string   // with the variables' values
	literal string   // with the file's own defaults only, never with values from the environment
	names   []string // of the variables
	open    bool     // a variable that is not set was left as it is written
	wrong   []wrongVariable
}

type wrongVariable struct {
	at      int // byte offset in the value
	message string
}

// parseVariable reads what the pattern has found; ok is false if it is neither ${NAME} nor ${NAME:-default}.
func parseVariable(written string) (name, fallback string, hasFallback, ok bool) {
	inner, opened := strings.CutPrefix(written, "${")
	inner, closed := strings.CutSuffix(inner, "}")
	name, fallback, hasFallback = strings.Cut(inner, ":-")
	ok = opened && closed && variableName.MatchString(name) && !strings.Contains(fallback, "${")
	return name, fallback, hasFallback, ok
}

// expand replaces ${NAME} and ${NAME:-default} in s, and $${ by a literal ${.
func expand(s string, env func(string) (string, bool), keepUnset bool) expansion {
	var e expansion
	var text, literal strings.Builder
	both := func(s string) {
		text.WriteString(s)
		literal.WriteString(s)
	}
	end := 0
	for _, m := range variable.FindAllStringIndex(s, -1) {
		both(s[end:m[0]])
		written := s[m[0]:m[1]]
		end = m[1]
		if written == "$${" {
			both("${")
			continue
		}
		name, fallback, hasFallback, ok := parseVariable(written)
		if !ok {
			e.wrong = append(e.wrong, wrongVariable{m[0], `neither ${NAME} nor ${NAME:-default}; write $${ for a literal ${`})
			continue
		}
		e.names = append(e.names, name)
		value, set := env(name)
		switch {
		case hasFallback && value == "":
			value = fallback
		case !set && keepUnset:
			value, e.open = written, true
		case !set && !hasFallback:
			e.wrong = append(e.wrong, wrongVariable{m[0], fmt.Sprintf("${%s} is not set in the environment; set it or give a default: ${%s:-default}", name, name)})
		}
		text.WriteString(value)
		literal.WriteString(fallback)
	}
	both(s[end:])
	e.text, e.literal = text.String(), literal.String()
	return e
}
