// Package redact masks secrets in texts for people. It knows neither the source of a text nor its destination.
package redact

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Mask replaces a value that must not be shown.
const Mask = "***"

// shortestPart is the least length of a secret that is masked inside other texts. A shorter one occurs by chance.
const shortestPart = 6

var (
	secretName = regexp.MustCompile(`(?i)passw|passphrase|secret|token|credential|private|api_?key|(^|_)(key|pass|auth|pwd|dsn)$`)
	// secretURL matches the user and password of a URL, from its scheme to its host. A token may take the place of the user.
	secretURL = regexp.MustCompile(`://[^/\s]*@`)
	// assignment matches an assignment as in a shell, in an option or in the query of a URL. The value is one piece; [line.assignmentAt] also finds values
	// of several pieces.
	assignment = regexp.MustCompile(`[A-Za-z0-9_-]+=("[^"]*"|'[^']*'|[^\s"';&|]+)`)
)

// SecretName reports whether the name of a variable is a usual name of a secret.
func SecretName(name string) bool { return secretName.MatchString(name) && name != "PWD" }

// SecretURL reports whether a value contains a URL with a user or a password.
func SecretURL(value string) bool { return secretURL.MatchString(value) }

// Texts returns a function that masks secrets in a text. It masks the given secrets, except short ones, and users and passwords of URLs. It also
// masks the values that the text gives to secret names: in assignments, HTTP headers, JSON members, and NAME:PASSWORD of curl and HTTPie. It leaves a
// variable in place of such a value unchanged.
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
		if strings.Contains(text, "@") { // thousands of texts in a configuration have none
			text = secretURL.ReplaceAllString(text, "://"+Mask+"@")
		}
		text = withoutHeaders(text) // first, because it needs the quotes that are part of a value
		if strings.Contains(text, "=") {
			text = assignment.ReplaceAllStringFunc(text, (&line{shell: true}).maskAssigned)
		}
		return text
	}
}

// secretValue returns the position of the value of an assignment to a secret. It may be inside another assignment: --env=PASSWORD=x. It returns 0 if
// there is none, or if the value is empty or begins with a variable.
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

// endsName has the characters after which a name begins, such as the "?" of a URL. A name may contain others: user[password], auth.tokens{ci}.
const endsName = "=?&;:,|<>()/@#`\"' \t\n"

// Arguments masks the arguments of a command. It masks each one like [Texts], and the whole value of an option with a name like a secret's, in the
// same argument or in the next one.
func Arguments(argv []string, mask func(string) string) []string {
	masked := make([]string, len(argv))
	var l line
	for i, arg := range argv {
		masked[i] = mask(arg)
		if name, _, has := strings.Cut(arg, "="); has && !strings.ContainsAny(name, " \t\n\"'") { // the assignment extends to the end of the argument
			masked[i] = l.maskAssigned(masked[i])
		}
		masked[i] = l.maskNext(masked[i])
	}
	return masked
}

// wordOf returns the name of an option in the form of a variable's name.
func wordOf(name string) string { return strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_") }
