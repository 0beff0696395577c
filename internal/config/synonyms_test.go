package config

import (
	"slices"
	"testing"
)

// A synonym means a key that there is, or will be, and is none itself.
func TestSynonymsMeanKeys(t *testing.T) {
	t.Parallel()
	known := append(jobKeys().Names(), jobKeys().Later...)
	for name, key := range synonyms {
		if !slices.Contains(known, key) || slices.Contains(known, name) {
			t.Errorf("%s for %s", name, key)
		}
	}
}
