package importer

import (
	"regexp"
	"strings"
)

const secretWord = `(?:pass(?:wd|word|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)`

var (
	secretVariable = regexp.MustCompile(`(?i)(?:^|_|[a-z])` + secretWord + `(?:$|_)`)
	fileVariable   = regexp.MustCompile(`(?i)(?:file|path|dir|name|id|url)$`)
	// Each of secretTexts has the secret as its last group that matches. A value that begins with $ is a variable, and no secret, unless it is in single quotes.
	secretTexts = []*regexp.Regexp{
		regexp.MustCompile(`(?i)[A-Za-z0-9_-]*` + secretWord + `[A-Za-z0-9_-]*["']?\s*[=:]\s*(?:'([^'\x00]{3}[^']*)|["']?([^\s$"'&;|<>(){}/\x00]{3}[^\s"'&;|]*))`),
		regexp.MustCompile(`(?i)\s--?` + secretWord + `\s+` + secretValue(`<>/-`)),
		regexp.MustCompile(`://[^/\s:@$]*:([^@\s/$"'\x00][^@\s/$"']*)@`),
		regexp.MustCompile(`(?i)authorization:\s*(?:[a-z]+\s+([^\s$"'\x00]{4}[^\s$"']*)|([^\s$"'\x00]{4}[^\s$"']*)(?:\s*["']|\s+-|$))`),
		regexp.MustCompile(`\bcurl\b.*?\s(?:-u|--user)[\s=]*(?:'[^\s:']+:([^'\x00][^']*)|"?[^\s:"'$\x00]+:([^\s$"'\x00][^\s"']*))`),
		regexp.MustCompile(`\b(?:mysql|mariadb)[a-z_-]*\b.*?\s-p` + secretValue(`-`)),
		regexp.MustCompile(`\bsshpass\s+-p\s*` + secretValue(``)),
		regexp.MustCompile(`\bredis-cli\b.*?\s(?:-a|--pass)[\s=]*` + secretValue(`-`)),
		regexp.MustCompile(`(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|api\.telegram\.org/(?:file/)?bot|\.webhook\.office\.com)[/:]?([^\s$"'\x00/][^\s"']*)`),
	}
)

// secretValue returns the pattern of a value that is a secret: in single quotes, or without a variable at its beginning. It does not begin with one of the others.
func secretValue(others string) string {
	return `(?:'([^'\x00` + others + `][^']*)|["']?([^\s$"'\x00` + others + `][^\s"']*))`
}

// secretName reports whether the value of a variable of this name is probably a secret.
func secretName(name string) bool {
	return secretVariable.MatchString(name) && !fileVariable.MatchString(name)
}

func hasSecret(text string) bool { return maskSecrets(text) != text }

// maskSecrets replaces what looks like a password or a token.
func maskSecrets(text string) string {
	for _, r := range secretTexts {
		for m := r.FindStringSubmatchIndex(text); m != nil; m = r.FindStringSubmatchIndex(text) {
			last := len(m) - 2
			if m[last] < 0 {
				last -= 2
			}
			text = text[:m[last]] + mask + text[m[last+1]:]
		}
	}
	return strings.ReplaceAll(text, mask, "***")
}

// mask stands for a secret while more of them are looked for: no secret begins with it.
const mask = "\x00"
