#!/bin/sh
# pgregory.net/rapid v1.3.0: how often a state machine test tries an action
# depends on the place of the action's name in the alphabet.
#
# One would guess: T.Repeat takes its actions about equally often, and their names
# are only for messages.
# Guess before the run: ten actions, 10 % each, no ratio above 2, although draws
# were known to prefer small numbers. It missed.
#
# What happens: Repeat sorts the names and draws an index like any other number,
# and numbers prefer small values. Of 10 actions the first two get 16 % each and
# the rarest 6 to 7 %; of 40, the first gets eight times the share of the rarest.
# SampledFrom does the same with its slice.
#
# Why it matters: renaming an action, or adding one, changes what the test covers,
# and a fault in the later half of a long list is hardly tried.
#
# Output seen (the shares vary a little):
#   10 actions: first 16.0 %, rarest 6.7 %
#   40 actions: first 11.2 %, rarest 1.3 %
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >finding_test.go <<'GO'
package finding

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestShares(t *testing.T) {
	for _, size := range []int{10, 40} {
		taken, sum := make([]int, size), 0
		rapid.Check(t, func(t *rapid.T) {
			actions := map[string]func(*rapid.T){}
			for i := range size {
				actions[fmt.Sprintf("action%02d", i)] = func(*rapid.T) { taken[i]++; sum++ }
			}
			t.Repeat(actions)
		})
		rarest := taken[0]
		for _, times := range taken {
			rarest = min(rarest, times)
		}
		fmt.Printf("%d actions: first %.1f %%, rarest %.1f %%\n", size, 100*float64(taken[0])/float64(sum), 100*float64(rarest)/float64(sum))
		if taken[0] < 2*rarest || taken[0]*size < sum*13/10 {
			t.Error("changed: the shares are nearly even")
		}
	}
}
GO
go mod init finding
go get pgregory.net/rapid@v1.3.0
go test -count=1 -rapid.checks=2000 -v .
