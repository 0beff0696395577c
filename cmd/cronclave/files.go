package main

import (
	"os"

	"github.com/cronclave/cronclave/internal/safefile"
)

// trustOfRoot is for the commands that execute the content of files: as root they refuse files that others may change.
func trustOfRoot() safefile.Trust {
	if os.Geteuid() == 0 {
		return safefile.Administrators
	}
	return safefile.Everybody
}
