package process

import "github.com/cronclave/cronclave/internal/proc"

// hasExecuted reports whether an unreaped child has executed a program. It returns true if this is unknown.
func hasExecuted(pid int) bool {
	p, ok := proc.Of(pid)
	return !ok || p.Executed()
}
