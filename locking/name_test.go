package locking

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cronclave/cronclave/internal/lease"
)

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		parts        []string
		name, tagged string
	}{
		{[]string{"orders"}, "orders", "{orders}"},
		{[]string{"orders", "17"}, "orders:17", "{orders}:17"},
		{[]string{"orders", "a:b", "c"}, "orders:a%3Ab:c", "{orders}:a%3Ab:c"},
		{[]string{"orders", "a", "b:c"}, "orders:a:b%3Ac", "{orders}:a:b%3Ac"},
		{[]string{"orders", "{17}"}, "orders:%7B17%7D", "{orders}:%7B17%7D"},
		{[]string{"{or}ders", "100%"}, "%7Bor%7Dders:100%25", "{%7Bor%7Dders}:100%25"},
		{[]string{"orders", ""}, "orders:", "{orders}:"},
		{[]string{"orders", "a\tb\n"}, "orders:a%09b%0A", "{orders}:a%09b%0A"},
		{[]string{"orders", "queue"}, "orders:queue", "{orders}:%71ueue"},
		{[]string{"orders", "dead", "1"}, "orders:dead:1", "{orders}:%64ead:1"},
		{[]string{"Bücher", "ü"}, "Bücher:ü", "{Bücher}:ü"},
	} {
		if got := Name(tc.parts[0], tc.parts[1:]...); got != tc.name {
			t.Errorf("Name of %q is %q, want %q", tc.parts, got, tc.name)
		}
		if got := Tagged(tc.parts[0], tc.parts[1:]...); got != tc.tagged {
			t.Errorf("Tagged of %q is %q, want %q", tc.parts, got, tc.tagged)
		}
	}
}

// Names are ambiguous if they can't be read back, or if they are a key of another lock.
func TestNamesAreUnambiguousAndAllowed(t *testing.T) {
	part := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a:{}%\n]{0,4}`), rapid.SampledFrom(lease.KeyParts))
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.OneOf(rapid.StringN(1, -1, -1), rapid.StringMatching(`[a:{}%]{1,3}`)).Draw(t, "kind")
		parts := append([]string{kind}, rapid.SliceOfN(part, 0, 4).Draw(t, "ids")...)
		for _, name := range []string{Name(kind, parts[1:]...), Tagged(kind, parts[1:]...)} {
			if err := lease.CheckName(name); err != nil {
				t.Errorf("%q: %v", name, err)
			}
			var back []string
			for _, p := range strings.Split(strings.NewReplacer("{", "", "}", "").Replace(name), ":") {
				plain, err := url.PathUnescape(p)
				if err != nil {
					t.Fatal(err)
				}
				back = append(back, plain)
			}
			if !slices.Equal(back, parts) {
				t.Errorf("%q is of %q, and of %q", name, parts, back)
			}
		}
	})
}
