package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// MaxEnvFile is the maximum length of an env file in bytes.
const MaxEnvFile = 1 << 20

// MaxEnvValue is the maximum length of a variable's value in bytes. Linux limits NAME=value to 128 KiB.
const MaxEnvValue = 128 << 10

// Warning describes a line of an env file that other programs read differently.
type Warning struct {
	Line    int // line number, from 1
	Message string
}

// ParseEnv parses the text of an env file. path is used only in errors. Each line has the form NAME=value and ends in LF or CRLF; "export " before the name
// is optional. Empty lines and lines that begin with # are ignored. A value is taken literally, without surrounding blanks. It may be in single quotes, or in
// double quotes with the escapes \\, \", \$ and \n. Variables are not expanded. The error contains all faults, each as a line FILE:LINE: message. Faults and
// warnings never contain a value, because it may be a secret.
func ParseEnv(path, text string) (vars map[string]string, warnings []Warning, err error) {
	vars = map[string]string{}
	var faults []error
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, err := parseVariable(line)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", path, number, err))
			continue
		}
		vars[name] = value
		if commentLike.MatchString(line) {
			warnings = append(warnings, Warning{number, fmt.Sprintf("the # and what follows are a part of the value of %s here, and a comment for other programs; "+
				"put the value in quotes, or the comment in a line of its own", name)})
		}
	}
	return vars, warnings, errors.Join(faults...)
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// commentLike matches a line whose unquoted value contains a # after a blank.
	commentLike = regexp.MustCompile(`=\s*[^'"\s].*\s#|=\s+#`)
)

// parseVariable parses one line. The error does not contain the line, because the line may contain a secret.
func parseVariable(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, "=")
	if !ok {
		return "", "", errors.New("no = in this line, NAME=value is expected")
	}
	name = strings.TrimSpace(name)
	if rest, ok := strings.CutPrefix(name, "export "); ok {
		name = strings.TrimSpace(rest)
	}
	if !variableName.MatchString(name) {
		return "", "", errors.New("the text before = is no variable name (letters, digits and _)")
	}
	value, err = unquoteValue(strings.TrimSpace(value))
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	return name, value, nil
}

// unquoteValue removes the quotes of a value. Only a comment may follow the closing quote.
func unquoteValue(s string) (string, error) {
	if s == "" || s[0] != '\'' && s[0] != '"' {
		return s, nil
	}
	quote, value := s[0], strings.Builder{}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			if rest := strings.TrimSpace(s[i+1:]); rest != "" && rest[0] != '#' {
				return "", errors.New("text after the closing quote")
			}
			return value.String(), nil
		case c == '\\' && quote == '"' && i+1 < len(s) && strings.IndexByte(`\"$n`, s[i+1]) >= 0:
			i++
			if s[i] == 'n' {
				value.WriteByte('\n')
			} else {
				value.WriteByte(s[i])
			}
		default:
			value.WriteByte(c)
		}
	}
	return "", fmt.Errorf("the closing %c is missing in this line; a value cannot go on in the next one, \\n in double quotes is a line end", quote)
}

// InterpreterFault returns a text that explains why Linux can't execute a script that begins with these bytes, or "". It detects only a #! line that ends in
// a carriage return. The kernel or env(1) takes the carriage return for a part of the interpreter's name or of its option, and reports "no such file".
func InterpreterFault(start []byte) string {
	line, _, ended := bytes.Cut(start, []byte("\n"))
	if !ended || !bytes.HasPrefix(line, []byte("#!")) || !bytes.HasSuffix(line, []byte("\r")) {
		return ""
	}
	return "its #! line ends in a carriage return, as saved on Windows, which becomes a part of the interpreter's name; save the file with LF line ends (sed -i 's/\\r$//')"
}
