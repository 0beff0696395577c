package command

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/redact"
)

// openVariables are never masked, whatever process they come from: they name the user, the place and the terminal.
var openVariables = []string{"PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TERM", "SHLVL", "_"}

// MaskedEnvironment makes the same environment as [Environment] for people to look at, and a function that masks other texts. Masked is what
// came from a file or from the environment of this process: a variable as a whole, and its value inside other texts where that is not too short.
// So are values with a name like a secret's, or with a URL that has a password ([redact.Texts]). composed names the variables of Env whose values have
// something of the environment in them.
func MaskedEnvironment(ctx context.Context, s EnvSpec, composed map[string]bool) (env []string, mask func(string) string, err error) {
	vars, filed, err := s.build(ctx)
	if err != nil {
		return nil, nil, err
	}
	inherited := openless(s.Base)
	mask = redact.Texts(secretsOf(inherited, vars, filed))
	for name, value := range vars {
		_, ours := s.Extra[name]
		_, own := s.Env[name]
		foreign := filed[name] || own && composed[name] || !own && inherited[name] == value
		switch {
		case ours || value == "":
		case foreign || redact.SecretName(name) || redact.SecretURL(value):
			vars[name] = redact.Mask
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

// secretsOf are all values of the environment, and those of vars that are from files.
func secretsOf(inherited, vars map[string]string, filed map[string]bool) []string {
	secrets := slices.Collect(maps.Values(inherited))
	for name, fromFile := range filed {
		if fromFile {
			secrets = append(secrets, vars[name])
		}
	}
	return secrets
}
