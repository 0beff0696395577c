package console

import (
	"fmt"

	"github.com/cronclave/cronclave/internal/cluster"
)

// Story prints the explanation of what happened to a job at an instant, and the records of the tick.
func (p Printer) Story(s *cluster.Story) {
	fmt.Fprintf(p.Out, "job %s at %s: %s\n", s.Job, s.At.Format("2006-01-02 15:04:05 MST"), s.Fate)
	for _, line := range s.Lines {
		for n, part := range p.splitLines(line, 4) {
			fmt.Fprintf(p.Out, "%*s%s\n", 2+2*min(n, 1), "", part)
		}
	}
	if len(s.Runs) > 0 {
		fmt.Fprintln(p.Out)
		p.History(s.Runs)
	}
}
