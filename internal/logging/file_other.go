//go:build !unix

package logging

import (
	"io"
	"os"
)

// duplicate returns the file itself: only on Unix does a write to a pipe without a reader end the process.
func duplicate(f *os.File) io.Writer { return f }
