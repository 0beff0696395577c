package process

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/redact"
)

// openVariables are never masked, because they describe only the user, the folder and the terminal.
var openVariables = []string{"PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TERM", "SHLVL", "_"}

// MaskedEnvironment returns the environment of [Environment] for display, and a function that masks other texts. A variable is masked if its value comes from
// a file or from the environment of this process. The function also masks such values inside other texts, except short ones. A variable is also masked if its
// name suggests a secret, or if its value is a URL with a password ([redact.Texts]). composed is the set of variables of Env whose values contain parts of
// the environment.
func MaskedEnvironment(ctx context.Context, s EnvSpec, composed map[string]bool) (env []string, mask func(string) string, err error) {
	vars, filed, err := s.buildEnv(ctx)
	if err != nil {
		return nil, nil, err
	}
	inherited := hiddenVariables(s.Base)
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
	return sortedEntries(vars), mask, nil
}

// hiddenVariables returns the variables of an environment that are not open.
func hiddenVariables(environ []string) map[string]string {
	vars := map[string]string{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); !slices.Contains(openVariables, name) {
			vars[name] = value
		}
	}
	return vars
}

// secretsOf returns the values of the inherited variables, and of the variables that come from files.
func secretsOf(inherited, vars map[string]string, filed map[string]bool) []string {
	secrets := slices.Collect(maps.Values(inherited))
	for name, fromFile := range filed {
		if fromFile {
			secrets = append(secrets, vars[name])
		}
	}
	return secrets
}
