// Package redact masks secrets in texts that are displayed. It is independent of the source and the destination of a text.
package redact

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Mask replaces a masked value.
const Mask = "***"

// shortestPart is the minimum length of a secret that is masked inside other texts. Shorter texts occur by chance.
const shortestPart = 6

var (
	secretName = regexp.MustCompile(`(?i)passw|passphrase|secret|token|credential|private|api_?key|(^|_)(key|pass|auth|pwd|dsn)$`)
	// secretURL matches the user and the password in a URL. A token may be in the place of the user.
	secretURL = regexp.MustCompile(`://[^/\s]*@`)
	// assignment matches NAME=VALUE in a shell command, in an option or in the query of a URL. It matches only values of one quoted or unquoted piece;
	// [line.assignmentAt] handles values of several pieces.
	assignment = regexp.MustCompile(`[A-Za-z0-9_-]+=("[^"]*"|'[^']*'|[^\s"';&|]+)`)
)

// SecretName reports whether a variable with this name usually holds a secret.
func SecretName(name string) bool { return secretName.MatchString(name) && name != "PWD" }

// SecretURL reports whether a value contains a URL with a user or a password.
func SecretURL(value string) bool { return secretURL.MatchString(value) }

// Texts returns a function that masks secrets in a text. It masks the given secrets, except short ones, and the users and passwords of URLs. It also masks
// values whose names suggest a secret, in assignments, HTTP headers and JSON members, and NAME:PASSWORD of curl and HTTPie. If a shell variable is in the
// place of such a value, it leaves the variable unchanged.
func Texts(secrets []string) func(string) string {
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(s) < shortestPart })
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }) // a secret may be part of another
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, Mask)
	}
	replace := strings.NewReplacer(pairs...).Replace
	return func(text string) string {
		text = replace(text)
		if strings.Contains(text, "@") { // almost all texts in a configuration have no @
			text = secretURL.ReplaceAllString(text, "://"+Mask+"@")
		}
		text = withoutHeaders(text) // before assignments, because it needs the quotes around values
		if strings.Contains(text, "=") {
			text = assignment.ReplaceAllStringFunc(text, (&line{shell: true}).maskAssigned)
		}
		return text
	}
}

// secretValue returns the position of the value of an assignment to a secret. The assignment may be inside another one, as in --env=PASSWORD=x. It returns 0
// if there is no such assignment, or if the value is empty or begins with a variable.
func secretValue(text string) int {
	for end := 0; ; end++ {
		n := strings.IndexByte(text[end:], '=')
		if n < 0 {
			return 0
		}
		name, value := text[end:end+n], text[end+n+1:]
		name = name[strings.LastIndexAny(name, endsName)+1:]
		if end += n; value != "" && SecretName(wordOf(name)) && !strings.HasPrefix(strings.TrimLeft(value, `"'`), "$") {
			return end + 1
		}
	}
}

// endsName lists the characters that can precede a name, such as the "?" of a URL. Other characters may be part of a name: user[password], auth.tokens{ci}.
const endsName = "=?&;:,|<>()/@#`\"' \t\n"

// Arguments masks the arguments of a command. It masks each argument with mask. It also masks the whole value of an option whose name suggests a secret, in
// the same argument or in the next one.
func Arguments(argv []string, mask func(string) string) []string {
	masked := make([]string, len(argv))
	var l line
	for i, arg := range argv {
		masked[i] = mask(arg)
		if name, _, has := strings.Cut(arg, "="); has && !strings.ContainsAny(name, " \t\n\"'") { // the value extends to the end of the argument
			masked[i] = l.maskAssigned(masked[i])
		}
		masked[i] = l.maskNext(masked[i])
	}
	return masked
}

// wordOf converts the name of an option to the form of a variable's name.
func wordOf(name string) string { return strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_") }
