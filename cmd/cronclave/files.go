package main

import (
	"os"

	"github.com/cronclave/cronclave/internal/safefile"
)

// trustOfRoot returns the trust for commands that execute the content of files. As root, they refuse files that other users can change.
func trustOfRoot() safefile.Trust {
	if os.Geteuid() == 0 {
		return safefile.Administrators
	}
	return safefile.Everybody
}
