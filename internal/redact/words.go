package redact

import (
	"cmp"
	"regexp"
	"strings"
)

var (
	// word matches a word of a shell: adjacent pieces, quoted or not. An unclosed quote separates words, because not every text is shell code.
	word = regexp.MustCompile("(?s)(?:" + quoted + "|\\\\[^\n]|[<>]&|[^\\s\"'`;&|()\\\\])+")
	// piece matches a part of a word that may be a command itself.
	piece = regexp.MustCompile("(?s)" + quoted)
)

const quoted = `"(?:[^"\\]|\\.)*"|'[^']*'|\$\([^()]*\)`

// line is the state of reading a command word by word.
type line struct {
	program  program // the latest
	previous string  // the previous word, without its quotes
	named    bool    // whether the words before are the name of a header or YAML member with a secret, and its scheme
	shell    bool    // whether the words have shell quotes
}

// withoutWords masks the values that the words of a text give to options, headers and logins. It reads each command in quotes or $(...) as a separate
// text.
func withoutWords(text string) string {
	if !strings.ContainsAny(text, ": =") {
		return text
	}
	var b strings.Builder
	at, l := 0, line{shell: true}
	for _, found := range word.FindAllStringIndex(text, -1) {
		if gap := strings.ReplaceAll(text[at:found[0]], "\\\n", ""); strings.ContainsAny(gap, ";&|()`\n") {
			l = line{shell: true} // another command
		}
		b.WriteString(text[at:found[0]])
		b.WriteString(l.maskNext(text[found[0]:found[1]]))
		at = found[1]
	}
	b.WriteString(text[at:])
	return b.String()
}

// maskNext masks the next word.
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

// namesSecret reports whether a word is the name of a header or YAML member whose value, the next word, is a secret. A quoted name belongs to JSON
// and does not count.
func namesSecret(word string) bool {
	name, is := strings.CutSuffix(word, ":")
	return is && strings.Trim(name[:min(1, len(name))], "\"'\\") != "" && header.FindString(word) == word && secretHeader(name)
}

// isValue reports whether a word is the value of the option before it, and not a variable.
func (l *line) isValue(arg string) bool {
	plain := l.unquoted(arg)
	return plain != "" && !strings.HasPrefix(plain, "-") && !isVariable(plain) && !(l.shell && strings.ContainsAny(arg[:1], "<>"))
}

// secretOption reports whether a word is an option whose value, the next word, is a secret.
func (l *line) secretOption(word string) bool {
	option, rest := l.program.splitPassword(word)
	own := option != "" && rest == ""
	openssl := word == "-passin" || word == "-passout"
	return own || openssl || strings.HasPrefix(word, "-") && !strings.Contains(word, "=") && SecretName(wordOf(word))
}

// loginAt returns the position of the password in NAME:PASSWORD. It returns 0 if the word is not a login, or if the password is a variable.
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

// passwordAt returns the position of a password in the word of its option. It returns 0 if there is none, or if it is a variable.
func (l *line) passwordAt(arg string) int {
	option, value := l.program.splitPassword(l.unquoted(arg))
	if value == "" || isVariable(value) {
		return 0
	}
	return strings.Index(arg, option) + len(option)
}

// takesAssignment matches words after which a quoted word is NAME=VALUE instead of a command.
var takesAssignment = regexp.MustCompile(`^(-e|--env|env|-d|--data(-[a-z]+)?|-F|--form|--set|--build-arg)$`)

// quotedAssignment matches the start of a quoted assignment. A command has a space before its first assignment.
var quotedAssignment = regexp.MustCompile(`^["'][^\s"'=]+=[^"']`)

// assignmentAt returns the position of a secret value that is assigned in a shell word and extends to the end of the word, or 0. Other words that begin
// with a quote, and $(...), are read as separate texts.
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

// maskAssigned masks the value of an assignment to a secret, and everything after it.
func (l *line) maskAssigned(text string) string {
	if at := secretValue(text); at > 0 {
		return l.maskFrom(text, at)
	}
	return text
}

// headerAt returns the position of the value of a header with a name like a secret's. It returns 0 if the word has none, or if the value is a variable.
// Many words contain a colon: hosts, folders and container images. So a word counts as a header only after its option, as an item of HTTPie, or with
// a space after its colon.
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
	case !behind && !spaced && strings.Trim(value, "0123456789") == "": // a host with its port
		return 0
	case !isSecretOf(arg[found[4]:found[5]], value):
		return 0
	}
	return at
}

// maskFrom returns a word in which everything from a position on is masked, except for the quote around it.
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

// unquoted returns a word as the program gets it, without quotes.
func (l *line) unquoted(arg string) string {
	if !l.shell {
		return arg
	}
	return unquote.Replace(arg)
}

var unquote = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\ `, " ", `\`, "", `"`, "", "'", "")

// maskNested masks a part of a word that may be a command itself.
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
