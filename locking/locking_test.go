package locking

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/cronclave/cronclave/internal/lease"
)

// TestGateLetsNoSmallerTokenIn refuses every token that is smaller than the greatest so far.
// Promise: P4
func TestGateLetsNoSmallerTokenIn(t *testing.T) {
	t.Parallel()
	var g Gate
	const greatest = Token(1<<53 - 1)
	acted := 0
	act := func() error { acted++; return nil }
	failed := errors.New("failed")
	for _, tc := range []struct {
		token Token
		act   func() error
		want  error
	}{
		{5, act, nil},
		{5, act, nil},
		{4, act, ErrStale},
		{6, func() error { return failed }, failed},
		{5, act, ErrStale}, // the one that failed was there, too
		{6, act, nil},
		{greatest, act, nil},
		{greatest - 1, act, ErrStale},
	} {
		before := acted
		err := g.Do(tc.token, tc.act)
		if !errors.Is(err, tc.want) || (err == nil) != (acted == before+1) {
			t.Errorf("token %d: %v (acted: %v), want %v", tc.token, err, acted > before, tc.want)
		}
	}
	for _, bad := range []Token{0, -1, greatest + 1} {
		if err := g.Do(bad, act); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("token %d: %v", bad, err)
		}
	}
}

// A gate lets no other caller in while one acts: check and act are one step.
// Promise: P4
func TestGateIsClosedWhileSomebodyActs(t *testing.T) {
	t.Parallel()
	var g Gate
	err := g.Do(5, func() error {
		if g.mu.TryLock() {
			g.mu.Unlock()
			t.Error("another could act at the same time")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Check and act are one step: the last act has the greatest token.
// Promise: P4
func TestGateActsInTheOrderOfItsTokens(t *testing.T) {
	t.Parallel()
	var g Gate
	var last Token
	var wg sync.WaitGroup
	const holders = 64
	for token := Token(1); token <= holders; token++ {
		wg.Go(func() {
			_ = g.Do(token, func() error { last = token; return nil })
		})
	}
	wg.Wait()
	if last != holders {
		t.Errorf("the last who acted had token %d, want %d", last, holders)
	}
}

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
