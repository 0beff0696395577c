//go:build !unix

package logging

import (
	"io"
	"os"
)

// duplicateFile returns the file itself. Only Unix needs a duplicate, because there a write to a pipe without a reader can end the process.
func duplicateFile(f *os.File) io.Writer { return f }
