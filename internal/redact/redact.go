// Package redact masks secrets in what people look at. It knows neither where a text is from nor where it is shown.
package redact

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Mask stands for a value that must not be shown.
const Mask = "***"

// shortestPart is how long a secret must be to be masked inside other texts too: a shorter one is part of many by chance.
const shortestPart = 6

var (
	secretName = regexp.MustCompile(`(?i)passw|passphrase|secret|token|credential|private|api_?key|(^|_)(key|pass|auth|pwd|dsn)$`)
	// secretURL is the user of a URL with the password, from behind its scheme to its host. A token may stand in the place of the user.
	secretURL = regexp.MustCompile(`://[^/\s]*@`)
	// assignment is as in a shell, in an option, or in the query of a URL. Its value has one piece; [line.assignment] finds more in a word.
	assignment = regexp.MustCompile(`[A-Za-z0-9_-]+=("[^"]*"|'[^']*'|[^\s"';&|]+)`)
)

// SecretName returns whether a variable's name is that of a secret, by the usual words.
func SecretName(name string) bool { return secretName.MatchString(name) && name != "PWD" }

// SecretURL returns whether a value has a URL with a user or a password in it.
func SecretURL(value string) bool { return secretURL.MatchString(value) }

// Texts returns a function that masks in a text all secrets that are not too short, users and passwords of URLs, and values that the text itself gives to
// names like those of secrets: as assignments, headers of HTTP, members of JSON, and NAME:PASSWORD of curl and HTTPie. A variable in place of such a value stays.
func Texts(secrets []string) func(string) string {
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(s) < shortestPart })
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }) // one may be part of another
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, Mask)
	}
	replace := strings.NewReplacer(pairs...).Replace
	return func(text string) string {
		text = replace(text)
		if strings.Contains(text, "@") { // a configuration has thousands of texts without
			text = secretURL.ReplaceAllString(text, "://"+Mask+"@")
		}
		text = withoutHeaders(text) // first: it needs the quotes that are part of a value
		if strings.Contains(text, "=") {
			text = assignment.ReplaceAllStringFunc(text, (&line{shell: true}).assigned)
		}
		return text
	}
}

// secretValue returns where the value of an assignment to a secret begins in a text, which may be within another: --env=PASSWORD=x. It returns 0 if there is
// none, or it is empty, or begins with a variable.
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

// endsName are the characters behind which a name begins: behind the "?" of a URL, for one. A name may have others: user[password], auth.tokens{ci}.
const endsName = "=?&;:,|<>()/@#`\"' \t\n"

// Arguments masks those of a command: each as [Texts] does, and as a whole the value of an option with a name like a secret's, in the same argument or in
// the next one.
func Arguments(argv []string, mask func(string) string) []string {
	masked := make([]string, len(argv))
	var l line
	for i, arg := range argv {
		masked[i] = mask(arg)
		if name, _, has := strings.Cut(arg, "="); has && !strings.ContainsAny(name, " \t\n\"'") { // one assignment, to the end of the argument
			masked[i] = l.assigned(masked[i])
		}
		masked[i] = l.next(masked[i])
	}
	return masked
}

// wordOf is an option as a variable would be named.
func wordOf(name string) string { return strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_") }
