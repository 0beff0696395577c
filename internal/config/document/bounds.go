package document

import "fmt"

// Bounds of a configuration. They hold before the library reads a text, since its memory grows with the depth, the number and the names of the
// values.
const (
	// MaxFileBytes is the length of one file: some 25,000 jobs.
	MaxFileBytes  = 4 << 20
	maxTotalBytes = 16 << 20 // of all files
	maxFiles      = 10_000
	maxDepth      = 32        // of brackets and braces
	maxParts      = 32        // of a dotted key
	maxKey        = 1 << 10   // of one part of a key
	maxString     = 256 << 10 // as it is written; the system takes 128 KiB of an argument or a variable
	maxValues     = 250_000   // and headers
	maxKeyBytes   = 64 << 20  // of the names of all keys, each with those of the tables around it
	maxFaults     = 1000      // that are reported, and as many warnings
	maxTwins      = 100       // that are reported of one file
)

// partCost is what a part of a key costs besides its name.
const partCost = 16

const (
	tooDeep      = "nested more than 32 deep"
	tooManyParts = "a key of more than 32 parts"
	keyTooLong   = "a key of more than 1 KiB"
	textTooLong  = "a string of more than 256 KiB"
)

// Bounds are the rest of the bounds for all files together.
type Bounds struct {
	files, bytes, values, keyBytes int
}

// NewBounds returns the bounds of a whole configuration.
func NewBounds() *Bounds {
	return &Bounds{files: maxFiles, bytes: maxTotalBytes, values: maxValues, keyBytes: maxKeyBytes}
}

// Take takes a file of so many bytes.
func (b *Bounds) Take(bytes int) error {
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

// spend takes values, and what their keys cost. It returns the bound that is exceeded; "" if none is.
func (b *Bounds) spend(values, keyBytes int) string {
	b.values -= values
	b.keyBytes -= keyBytes
	switch {
	case b.values < 0:
		return fmt.Sprintf("more than %d values and headers in all files", maxValues)
	case b.keyBytes < 0:
		return fmt.Sprintf("the names of keys and the tables around them are longer than %d MiB in all files", maxKeyBytes>>20)
	}
	return ""
}
