//go:build !unix

package logging

import (
	"io"
	"os"
)

// duplicate returns the file itself: only Unix ends a process that writes to a pipe without a reader.
func duplicate(f *os.File) io.Writer { return f }
