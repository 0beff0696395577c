package redact

import (
	"cmp"
	"regexp"
	"strings"
)

var (
	// word matches a word of a shell command, which consists of adjacent pieces, quoted or unquoted. An unclosed quote separates words, because not every
	// text is shell code.
	word = regexp.MustCompile("(?s)(?:" + quoted + "|\\\\[^\n]|[<>]&|[^\\s\"'`;&|()\\\\])+")
	// piece matches a quoted part of a word, which may contain a command.
	piece = regexp.MustCompile("(?s)" + quoted)
)

const quoted = `"(?:[^"\\]|\\.)*"|'[^']*'|\$\([^()]*\)`

// line is the state while a command is read word by word.
type line struct {
	program  program // the program that the words belong to
	previous string  // the previous word without its quotes
	named    bool    // whether the next word is the secret value of a header or YAML member
	shell    bool    // whether the words are quoted as in a shell
}

// withoutWords masks the secret values of options, headers and logins in a text. It handles the content of quotes and of $(...) as a separate command.
func withoutWords(text string) string {
	if !strings.ContainsAny(text, ": =") {
		return text
	}
	var b strings.Builder
	at, l := 0, line{shell: true}
	for _, found := range word.FindAllStringIndex(text, -1) {
		if gap := strings.ReplaceAll(text[at:found[0]], "\\\n", ""); strings.ContainsAny(gap, ";&|()`\n") {
			l = line{shell: true} // a new command begins
		}
		b.WriteString(text[at:found[0]])
		b.WriteString(l.maskNext(text[found[0]:found[1]]))
		at = found[1]
	}
	b.WriteString(text[at:])
	return b.String()
}

// maskNext returns the next word of the command, with its secret masked.
func (l *line) maskNext(arg string) string {
	plain := l.unquoted(arg)
	previous := l.previous
	l.previous = plain
	named := l.named
	if l.named = namesSecret(arg) || named && scheme.MatchString(plain+" "); l.named {
		return arg
	}
	if (named || l.secretOption(previous)) && l.isValue(arg) {
		return l.maskFrom(arg, 0)
	}
	l.program = l.program.nextProgram(plain, previous)
	if at := cmp.Or(l.loginAt(arg, previous), l.passwordAt(arg), l.headerAt(arg, previous), l.assignmentAt(arg, previous)); at > 0 {
		return l.maskFrom(arg, at)
	}
	if l.shell && strings.ContainsAny(arg, " \t\n") {
		return piece.ReplaceAllStringFunc(arg, maskNested)
	}
	return arg
}

// namesSecret reports whether a word is the name of a header or YAML member whose value is a secret. The value is the next word. A quoted name does not
// count, because it belongs to JSON.
func namesSecret(word string) bool {
	name, is := strings.CutSuffix(word, ":")
	return is && strings.Trim(name[:min(1, len(name))], "\"'\\") != "" && header.FindString(word) == word && secretHeader(name)
}

// isValue reports whether a word can be the value of the option before it. A variable does not count.
func (l *line) isValue(arg string) bool {
	plain := l.unquoted(arg)
	return plain != "" && !strings.HasPrefix(plain, "-") && !isVariable(plain) && !(l.shell && strings.ContainsAny(arg[:1], "<>"))
}

// secretOption reports whether a word is an option that takes a secret as the next word.
func (l *line) secretOption(word string) bool {
	option, rest := l.program.splitPassword(word)
	own := option != "" && rest == ""
	openssl := word == "-passin" || word == "-passout"
	return own || openssl || strings.HasPrefix(word, "-") && !strings.Contains(word, "=") && SecretName(wordOf(word))
}

// loginAt returns the position of the password in NAME:PASSWORD. It returns 0 if the word contains no login, or if the password is a variable.
func (l *line) loginAt(arg, previous string) int {
	if !l.program.hasLogin(l.unquoted(arg), previous) {
		return 0
	}
	at := strings.Index(arg, ":") + 1
	if value := l.unquoted(arg[at:]); value == "" || isVariable(value) {
		return 0
	}
	return at
}

// passwordAt returns the position of the password in a word that also contains its option. It returns 0 if there is no such password, or if it is a variable.
func (l *line) passwordAt(arg string) int {
	option, value := l.program.splitPassword(l.unquoted(arg))
	if value == "" || isVariable(value) {
		return 0
	}
	return strings.Index(arg, option) + len(option)
}

// takesAssignment matches a word that is followed by NAME=VALUE. If the next word is quoted, it is not read as a command.
var takesAssignment = regexp.MustCompile(`^(-e|--env|env|-d|--data(-[a-z]+)?|-F|--form|--set|--build-arg)$`)

// quotedAssignment matches the start of a quoted assignment. In a quoted command, a space precedes the first assignment.
var quotedAssignment = regexp.MustCompile(`^["'][^\s"'=]+=[^"']`)

// assignmentAt returns the position of a secret value in a shell word, or 0. The value is the right side of an assignment and extends to the end of the word.
// Words that begin with a quote, and $(...), are usually separate commands and do not count.
func (l *line) assignmentAt(arg, previous string) int {
	if !l.shell {
		return 0
	}
	outside, _, _ := strings.Cut(arg, "$(")
	bare := outside[:strings.IndexAny(outside+`"`, `"'`)]
	if !strings.Contains(bare, "=") && !(takesAssignment.MatchString(previous) && quotedAssignment.MatchString(outside)) {
		return 0
	}
	if at := secretValue(arg); at <= len(outside) {
		return at
	}
	return 0
}

// maskAssigned masks the secret value of an assignment and everything after it.
func (l *line) maskAssigned(text string) string {
	if at := secretValue(text); at > 0 {
		return l.maskFrom(text, at)
	}
	return text
}

// headerAt returns the position of the value of a header whose name suggests a secret. It returns 0 if the word contains no such header, or if the value is a
// variable. Many words contain a colon, for example hosts, folders and container images. So a word counts as a header only after the option for headers, as
// an item of HTTPie, or with a space after its colon.
func (l *line) headerAt(arg, previous string) int {
	found := header.FindStringSubmatchIndex(arg)
	if found == nil {
		return 0
	}
	at := found[1]
	spaced := arg[at-1] != ':'
	value := l.unquoted(arg[at:])
	behind := found[2] >= 0 || previous == "-H" || previous == "--header" || previous == "--proxy-header"
	switch {
	case !behind && !spaced && !l.program.hasItems():
		return 0
	case !behind && !spaced && strings.Trim(value, "0123456789") == "": // a host and a port
		return 0
	case !isSecretOf(arg[found[4]:found[5]], value):
		return 0
	}
	return at
}

// maskFrom replaces everything in a word from a position on by Mask. It keeps a quote around the value.
func (l *line) maskFrom(arg string, at int) string {
	if !l.shell {
		return arg[:at] + Mask
	}
	if at == 0 && strings.ContainsAny(arg[:1], `"'`) {
		at = 1
	}
	var open rune
	for _, c := range arg[:at] {
		switch {
		case c == open:
			open = 0
		case open == 0 && (c == '"' || c == '\''):
			open = c
		}
	}
	end := ""
	if open != 0 {
		end = string(open)
	}
	return arg[:at] + Mask + end
}

// unquoted returns a word without its quotes, as the program gets it.
func (l *line) unquoted(arg string) string {
	if !l.shell {
		return arg
	}
	return unquote.Replace(arg)
}

var unquote = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\ `, " ", `\`, "", `"`, "", "'", "")

// maskNested masks the secrets in a quoted part of a word, which may contain a command.
func maskNested(text string) string {
	switch {
	case strings.HasPrefix(text, "$("):
		return "$(" + withoutWords(text[2:len(text)-1]) + ")"
	case strings.HasPrefix(text, "'"):
		return "'" + withoutWords(text[1:len(text)-1]) + "'"
	}
	inner := strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
	return `"` + strings.ReplaceAll(withoutWords(inner), `"`, `\"`) + `"`
}
