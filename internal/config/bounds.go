package config

import "fmt"

// Bounds of a configuration. They hold before the library reads a text, since its memory grows with the depth, the number and the names of the
// values.
const (
	maxFileBytes  = 4 << 20  // of one file: some 25,000 jobs
	maxTotalBytes = 16 << 20 // of all files
	maxFiles      = 10_000
	maxDepth      = 32        // of brackets and braces
	maxParts      = 32        // of a dotted key
	maxKey        = 1 << 10   // of one part of a key
	maxString     = 256 << 10 // as it is written; the system takes 128 KiB of an argument or a variable
	maxValues     = 250_000   // and headers
	maxKeyBytes   = 64 << 20  // of the names of all keys, each with those of the tables around it
	maxFaults     = 1000      // that are reported
)

// partCost is what a part of a key costs besides its name.
const partCost = 16

const (
	tooDeep      = "nested more than 32 deep"
	tooManyParts = "a key of more than 32 parts"
	keyTooLong   = "a key of more than 1 KiB"
	textTooLong  = "a string of more than 256 KiB"
)

// bounds are the rest of the bounds for all files together.
type bounds struct {
	files, bytes, values, keyBytes int
}

func newBounds() bounds {
	return bounds{files: maxFiles, bytes: maxTotalBytes, values: maxValues, keyBytes: maxKeyBytes}
}

// take takes a file of so many bytes.
func (b *bounds) take(bytes int) error {
	b.files--
	b.bytes -= bytes
	switch {
	case b.files < 0:
		return fmt.Errorf("more than %d files", maxFiles)
	case b.bytes < 0:
		return fmt.Errorf("the configuration is longer than %d MiB in all files", maxTotalBytes>>20)
	}
	return nil
}

// excess is the bound that was exceeded, and where.
type excess struct {
	at      int
	message string
}

// spend takes values, and what their keys cost.
func (s *scanner) spend(at, values, keyBytes int) {
	s.bounds.values -= values
	s.bounds.keyBytes -= keyBytes
	switch {
	case s.bounds.values < 0:
		s.exceed(at, fmt.Sprintf("more than %d values and headers in all files", maxValues))
	case s.bounds.keyBytes < 0:
		s.exceed(at, fmt.Sprintf("the names of keys and the tables around them are longer than %d MiB in all files", maxKeyBytes>>20))
	}
}

// exceed notes the first excess, and ends the scan.
func (s *scanner) exceed(at int, message string) {
	if s.excess == nil {
		s.excess = &excess{at, message}
	}
	s.pos = len(s.src)
}
