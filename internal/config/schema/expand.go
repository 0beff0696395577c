package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	variable     = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Variables configures the replacement of environment variables in strings.
type Variables struct {
	Lookup func(name string) (value string, set bool)
	// KeepUnset leaves references to unset variables as they are.
	KeepUnset bool
	// Taken receives the names of the variables that a [Reader] replaces.
	Taken map[string]bool
}

// Expansion is a string with its variables replaced.
type Expansion struct {
	Text    string   // the string with values from the environment, or the defaults of the references
	Literal string   // the string with the defaults of the references only, so it contains no value from the environment
	Names   []string // names of the variables
	Open    bool     // whether a reference to an unset variable was left as it is
	wrong   []wrongVariable
}

type wrongVariable struct {
	at      int // byte offset in the value
	message string
}

// parseVariable parses a match of the pattern variable. ok is false if the match has neither the form ${NAME} nor ${NAME:-default}.
func parseVariable(written string) (name, fallback string, hasFallback, ok bool) {
	inner, opened := strings.CutPrefix(written, "${")
	inner, closed := strings.CutSuffix(inner, "}")
	name, fallback, hasFallback = strings.Cut(inner, ":-")
	ok = opened && closed && variableName.MatchString(name) && !strings.Contains(fallback, "${")
	return name, fallback, hasFallback, ok
}

// Find returns the positions of all references ${NAME} and ${NAME:-default} in s.
func Find(s string) [][]int {
	return slices.DeleteFunc(variable.FindAllStringIndex(s, -1), func(m []int) bool {
		_, _, _, ok := parseVariable(s[m[0]:m[1]])
		return !ok
	})
}

// Expand replaces ${NAME} and ${NAME:-default} in s, and $${ by a literal ${.
func (v Variables) Expand(s string) Expansion {
	var e Expansion
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
		e.Names = append(e.Names, name)
		value, set := v.Lookup(name)
		switch {
		case hasFallback && value == "":
			value = fallback
		case !set && v.KeepUnset:
			value, e.Open = written, true
		case !set && !hasFallback:
			e.wrong = append(e.wrong, wrongVariable{m[0], fmt.Sprintf("${%s} is not set in the environment; set it or give a default: ${%s:-default}", name, name)})
		}
		text.WriteString(value)
		literal.WriteString(fallback)
	}
	both(s[end:])
	e.Text, e.Literal = text.String(), literal.String()
	return e
}
