package command

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
)

// Mask stands for a value that must not be shown.
const Mask = "***"

// shortestPart is how long a secret must be to be masked inside other texts too: a shorter one is part of many by chance.
const shortestPart = 6

// openVariables are never masked, whatever process they come from: they name the user, the place and the terminal.
var openVariables = []string{"PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TERM", "SHLVL", "_"}

// MaskedEnvironment makes the same environment as [Environment] for people to look at, and a function that masks other texts. Masked is what
// came from a file or from the environment of this process: a variable as a whole, and its value inside other texts where that is not too short.
// So are values with a name like a secret's, or with a URL that has a password. composed names the variables of Env whose values have something of
// the environment in them.
func MaskedEnvironment(ctx context.Context, s EnvSpec, composed map[string]bool) (env []string, mask func(string) string, err error) {
	vars, filed, err := s.build(ctx)
	if err != nil {
		return nil, nil, err
	}
	inherited := openless(s.Base)
	mask = masking(inherited, vars, filed)
	for name, value := range vars {
		_, ours := s.Extra[name]
		_, own := s.Env[name]
		foreign := filed[name] || own && composed[name] || !own && inherited[name] == value
		switch {
		case ours || value == "":
		case foreign || secretName(name) || secretURL(value):
			vars[name] = Mask
		default:
			vars[name] = mask(value)
		}
	}
	return list(vars), mask, nil
}

// openless is an environment without the variables that may be shown.
func openless(environ []string) map[string]string {
	vars := map[string]string{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); !slices.Contains(openVariables, name) {
			vars[name] = value
		}
	}
	return vars
}

// masking masks all values of the environment, and those of vars that are from files.
func masking(inherited, vars map[string]string, filed map[string]bool) func(string) string {
	var secrets []string
	for _, value := range inherited {
		secrets = append(secrets, value)
	}
	for name, fromFile := range filed {
		if fromFile {
			secrets = append(secrets, vars[name])
		}
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < shortestPart })
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }) // one may be part of another
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, Mask)
	}
	return strings.NewReplacer(pairs...).Replace
}

// secretName returns whether a variable's name is that of a secret, by the usual words.
func secretName(name string) bool {
	return regexp.MustCompile(`(?i)passw|passphrase|secret|token|credential|private|api_?key|(^|_)(key|pass|auth|pwd|dsn)$`).
		MatchString(name) && name != "PWD"
}

// secretURL returns whether a value has a URL with a password in it.
func secretURL(value string) bool {
	return regexp.MustCompile(`://[^/@\s]*:[^/\s]*@`).MatchString(value)
}
