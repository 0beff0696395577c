package command

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxEnvFile bounds an env_file.
const maxEnvFile = 1 << 20

// readEnvFile reads an env_file, in the format of [EnvSpec.EnvFile]. It returns all faults together, one FILE:LINE: message a line.
func (f *jobFiles) readEnvFile(path string) (map[string]string, error) {
	text, err := f.read(path, maxEnvFile)
	if err != nil {
		return nil, fmt.Errorf("env_file: %w", err)
	}
	vars := map[string]string{}
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
	}
	return vars, errors.Join(faults...)
}

// parseVariable reads one line. A faulty line is not quoted in the error: it may be a secret.
func parseVariable(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, "=")
	if !ok {
		return "", "", errors.New("no = in this line, NAME=value is expected")
	}
	name = strings.TrimSpace(name)
	if rest, ok := strings.CutPrefix(name, "export "); ok {
		name = strings.TrimSpace(rest)
	}
	if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(name) {
		return "", "", errors.New("the text before = is no variable name (letters, digits and _)")
	}
	value, err = unquote(strings.TrimSpace(value))
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	return name, value, nil
}

// unquote takes the quotes off a value that begins with one. Only a comment may follow the closing one.
func unquote(s string) (string, error) {
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
	return "", fmt.Errorf("the closing %c is missing", quote)
}
