package command

import "github.com/cronclave/cronclave/internal/proc"

// executed returns whether a child that was not reaped yet has executed a program; yes if that can't be told.
func executed(pid int) bool {
	p, ok := proc.Of(pid)
	return !ok || p.Executed()
}
