// Package testtier divides the tests between `make test` and `make test-long`.
//
// A test that takes more than ten seconds under the race detector calls [Slow] in its first line. `make test` runs with -short and skips it; `make
// test-long` runs only such tests.
//
// A test that only computes is about ten times as slow under the race detector. It asks [RaceEnabled], and does only a part of its work if the
// detector is on. `make test-long` runs it a second time without the detector. Make finds both kinds in the source: see the Makefile.
//
// [SyncPage] compares the generated parts of pages in docs/ with the code that generates them.
package testtier

import "testing"

// Slow skips a test under -short.
func Slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow: make test-long runs it")
	}
}
