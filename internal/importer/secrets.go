package importer

import (
	"regexp"
	"strings"
)

const secretWord = `(?:pass(?:wd|word|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)`

var (
	secretVariable = regexp.MustCompile(`(?i)(?:^|_|[a-z])` + secretWord + `(?:$|_)`)
	fileVariable   = regexp.MustCompile(`(?i)(?:file|path|dir|name|id|url)$`)
	// Each of secretTexts has the secret as its last group. A value that begins with $ is a variable, and no secret.
	secretTexts = []*regexp.Regexp{
		regexp.MustCompile(`(?i)([A-Za-z0-9_-]*` + secretWord + `[A-Za-z0-9_-]*["']?\s*[=:]\s*["']?)([^\s$"'&;|<>(){}/]{3}[^\s"'&;|]*)`),
		regexp.MustCompile(`(?i)(\s--?` + secretWord + `\s+["']?)([^\s$"'<>/-][^\s"']*)`),
		regexp.MustCompile(`(://[^/\s:@$]*:)([^@\s/$"']+)@`),
		regexp.MustCompile(`(?i)(authorization:\s*(?:[a-z]+\s+)?)([^\s$"']{4,})`),
		regexp.MustCompile(`(\bcurl\b.*\s(?:-u|--user)\s*["']?[^\s:"'$]+:)([^\s$"']+)`),
		regexp.MustCompile(`(\b(?:mysql|mariadb)[a-z_-]*\b.*\s-p["']?)([^\s$"'-][^\s"']*)`),
		regexp.MustCompile(`(\bsshpass\s+-p\s*["']?)([^\s$"']+)`),
	}
)

// secretName reports whether the value of a variable of this name is probably a secret.
func secretName(name string) bool {
	return secretVariable.MatchString(name) && !fileVariable.MatchString(name)
}

func hasSecret(text string) bool { return maskSecrets(text) != text }

// maskSecrets replaces what looks like a password or a token.
func maskSecrets(text string) string {
	for _, r := range secretTexts {
		text = r.ReplaceAllStringFunc(text, func(found string) string {
			m := r.FindStringSubmatch(found)
			if strings.Trim(m[2], "*") == "" {
				return found
			}
			return strings.Replace(found, m[1]+m[2], m[1]+"***", 1)
		})
	}
	return text
}
