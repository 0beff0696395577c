package process

import (
	"context"
	"slices"
	"testing"
)

func masked(ctx context.Context, s EnvSpec) ([]string, error) {
	env, _, err := MaskedEnvironment(ctx, s, nil)
	return env, err
}

func TestMaskedEnvironment(t *testing.T) {
	got, mask, err := MaskedEnvironment(t.Context(), EnvSpec{
		Base: []string{"PATH=/usr/local/bin", "PWD=/srv/shop", "AWS_SECRET_ACCESS_KEY=k", "MONKEY=m", "EMPTY=", "LINE=one-two", "WHOLE=one-two-three",
			"CRONCLAVE_REDIS=redis://:hush-hush@h", "WITHHELD=out-of-reach"},
		InheritEnv: true,
		EnvTaken:   map[string]bool{"WITHHELD": true},
		EnvFile:    file(t, "FILED=1\nOVERRIDDEN=1\nLONG=from-a-file\n"),
		Env: map[string]string{"OVERRIDDEN": "2", "API_TOKEN": "t", "URL": "https://u:p@h/", "PLAIN": "https://h/u@v", "REDIS": "redis://:p@h:6379",
			"PIN": "pin 12", "HEADER": "Bearer from-a-file", "ARGS": "-x one-two-three -y one-two -z out-of-reach", "MODE": "m", "DIR": "/srv/shop"},
		EnvFromFile: map[string]string{"PGPASSFILE": file(t, "x")},
		Extra:       map[string]string{"CRONCLAVE_FENCING_TOKEN": "42", "CRONCLAVE_JOB": "one-two"},
	}, map[string]bool{"PIN": true})
	want := []string{"API_TOKEN=***", "ARGS=-x *** -y *** -z ***", "AWS_SECRET_ACCESS_KEY=***", "CRONCLAVE_FENCING_TOKEN=42", "CRONCLAVE_JOB=one-two",
		"DIR=/srv/shop", "EMPTY=", "FILED=***", "HEADER=Bearer ***", "LINE=***", "LONG=***", "MODE=m", "MONKEY=***", "OVERRIDDEN=2",
		"PATH=/usr/local/bin", "PGPASSFILE=***", "PIN=***", "PLAIN=https://h/u@v", "PWD=/srv/shop", "REDIS=***", "URL=***", "WHOLE=***"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got  %q, %v\nwant %q", got, err, want)
	}
	for text, want := range map[string]string{
		"curl -H 'X: from-a-file' redis://:hush-hush@h": "curl -H 'X: ***' ***", "1 2 m k": "1 2 m k", "one-two-three-four": "***-four",
	} {
		if got := mask(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
