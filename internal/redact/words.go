package redact

import (
	"cmp"
	"regexp"
	"strings"
)

var (
	// word is one of a shell: pieces that stand together, in quotes or not. A quote that is not closed separates words, since not every text is of a shell.
	word = regexp.MustCompile("(?s)(?:" + quoted + "|\\\\[^\n]|[<>]&|[^\\s\"'`;&|()\\\\])+")
	// piece is the part of a word that may be a command itself.
	piece = regexp.MustCompile("(?s)" + quoted)
)

const quoted = `"(?:[^"\\]|\\.)*"|'[^']*'|\$\([^()]*\)`

// line is a command as far as it has been read, word by word.
type line struct {
	program  program // the newest
	previous string  // word, without its quotes
	named    bool    // the words before are the name of a header or a member of YAML with a secret, and its scheme
	shell    bool    // the words have the quotes of a shell
}

// withoutWords masks the values that the words of a text give to options, headers and logins. It reads each command in quotes or $(...) as a text of its own.
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
		b.WriteString(l.next(text[found[0]:found[1]]))
		at = found[1]
	}
	b.WriteString(text[at:])
	return b.String()
}

// next masks the next word.
func (l *line) next(arg string) string {
	plain := l.plain(arg)
	previous := l.previous
	l.previous = plain
	named := l.named
	if l.named = namesSecret(arg) || named && scheme.MatchString(plain+" "); l.named {
		return arg
	}
	if (named || l.secretOption(previous)) && l.isValue(arg) {
		return l.masked(arg, 0)
	}
	l.program = l.program.after(plain, previous)
	if at := cmp.Or(l.login(arg, previous), l.password(arg), l.header(arg, previous), l.assignment(arg, previous)); at > 0 {
		return l.masked(arg, at)
	}
	if l.shell && strings.ContainsAny(arg, " \t\n") {
		return piece.ReplaceAllStringFunc(arg, nested)
	}
	return arg
}

// namesSecret returns whether a word is the name of a header or a member of YAML whose value is a secret, and is the next word. A name in quotes is of JSON.
func namesSecret(word string) bool {
	name, is := strings.CutSuffix(word, ":")
	return is && strings.Trim(name[:min(1, len(name))], "\"'\\") != "" && header.FindString(word) == word && secretHeader(name)
}

// isValue returns whether a word is the value of the option before it, and no variable.
func (l *line) isValue(arg string) bool {
	plain := l.plain(arg)
	return plain != "" && !strings.HasPrefix(plain, "-") && !isVariable(plain) && !(l.shell && strings.ContainsAny(arg[:1], "<>"))
}

// secretOption returns whether a word is an option whose value is a secret, and is the next word.
func (l *line) secretOption(word string) bool {
	option, rest := l.program.password(word)
	own := option != "" && rest == ""
	openssl := word == "-passin" || word == "-passout"
	return own || openssl || strings.HasPrefix(word, "-") && !strings.Contains(word, "=") && SecretName(wordOf(word))
}

// login returns where the password of NAME:PASSWORD begins in a word; 0 if it is no login, or has a variable.
func (l *line) login(arg, previous string) int {
	if !l.program.hasLogin(l.plain(arg), previous) {
		return 0
	}
	at := strings.Index(arg, ":") + 1
	if value := l.plain(arg[at:]); value == "" || isVariable(value) {
		return 0
	}
	return at
}

// password returns where a password alone begins in the word of its option; 0 if there is none, or a variable.
func (l *line) password(arg string) int {
	option, value := l.program.password(l.plain(arg))
	if value == "" || isVariable(value) {
		return 0
	}
	return strings.Index(arg, option) + len(option)
}

// takesAssignment are words behind which a word in quotes is NAME=VALUE, and no command.
var takesAssignment = regexp.MustCompile(`^(-e|--env|env|-d|--data(-[a-z]+)?|-F|--form|--set|--build-arg)$`)

// quotedAssignment is the begin of one in quotes. A command has a space before its first assignment.
var quotedAssignment = regexp.MustCompile(`^["'][^\s"'=]+=[^"']`)

// assignment returns where the value of one to a secret begins in a word of a shell, and goes on to its end; 0 if there is none. Another word that begins with
// a quote, and $(...), are read as texts of their own.
func (l *line) assignment(arg, previous string) int {
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

// assigned masks all from the value of an assignment to a secret on.
func (l *line) assigned(text string) string {
	if at := secretValue(text); at > 0 {
		return l.masked(text, at)
	}
	return text
}

// header returns where the value of a header with a name like a secret's begins in a word; 0 if it is none, or a variable. Many words have a colon: hosts,
// folders and images of containers. So a header is behind its option, or an item of HTTPie, or one argument with a space behind its colon.
func (l *line) header(arg, previous string) int {
	found := header.FindStringSubmatchIndex(arg)
	if found == nil {
		return 0
	}
	at := found[1]
	spaced := arg[at-1] != ':'
	value := l.plain(arg[at:])
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

// masked is a word of which all is masked from a place on, but for the quote around it.
func (l *line) masked(arg string, at int) string {
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

// plain is a word as the program gets it, without quotes.
func (l *line) plain(arg string) string {
	if !l.shell {
		return arg
	}
	return unquote.Replace(arg)
}

var unquote = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\ `, " ", `\`, "", `"`, "", "'", "")

// nested masks a piece of a word that may be a command itself.
func nested(text string) string {
	switch {
	case strings.HasPrefix(text, "$("):
		return "$(" + withoutWords(text[2:len(text)-1]) + ")"
	case strings.HasPrefix(text, "'"):
		return "'" + withoutWords(text[1:len(text)-1]) + "'"
	}
	inner := strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
	return `"` + strings.ReplaceAll(withoutWords(inner), `"`, `\"`) + `"`
}
