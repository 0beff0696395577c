package document

import "fmt"

// The limits of a configuration. The scanner enforces them before the TOML library decodes the text, because the memory that the library needs grows with the
// depth and the number of values and with the length of keys.
const (
	// MaxFileBytes is the maximum length of one file in bytes, enough for about 25,000 jobs.
	MaxFileBytes  = 4 << 20
	maxTotalBytes = 16 << 20 // maximum length of all files together
	maxFiles      = 10_000
	maxDepth      = 32        // maximum depth of nested brackets and braces
	maxParts      = 32        // maximum number of parts of a dotted key
	maxKey        = 1 << 10   // maximum length of one part of a key
	maxString     = 256 << 10 // maximum length of a string in the file; Linux permits 128 KiB for an argument or a variable
	maxValues     = 250_000   // maximum number of values and table headers in all files
	maxKeyBytes   = 64 << 20  // maximum length of all keys together, each including the names of the tables around it
	maxFaults     = 1000      // maximum number of faults that are reported; the same limit applies to warnings
	maxTwins      = 100       // maximum number of duplicate definitions that are reported per file
)

// partCost is the cost of one part of a key, in addition to the length of the name.
const partCost = 16

const (
	tooDeep      = "nested more than 32 deep"
	tooManyParts = "a key of more than 32 parts"
	keyTooLong   = "a key of more than 1 KiB"
	textTooLong  = "a string of more than 256 KiB"
)

// Bounds has the remaining budget of each limit, for all files together.
type Bounds struct {
	files, bytes, values, keyBytes int
}

// NewBounds returns the limits of a whole configuration.
func NewBounds() *Bounds {
	return &Bounds{files: maxFiles, bytes: maxTotalBytes, values: maxValues, keyBytes: maxKeyBytes}
}

// Take subtracts a file of the given length from the budget. It returns an error if a limit is exceeded.
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

// spendValues subtracts values and the cost of their keys from the budget. It returns a message if a limit is exceeded, or "".
func (b *Bounds) spendValues(values, keyBytes int) string {
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
