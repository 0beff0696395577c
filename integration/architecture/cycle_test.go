package architecture

import "slices"

// largestCycle is the largest set of files of which each leads to each other one; nil if there is none.
func largestCycle(g graph) []string {
	c := cycles{graph: g, index: map[string]int{}, low: map[string]int{}, onStack: map[string]bool{}}
	for file := range g {
		if c.index[file] == 0 {
			c.visit(file)
		}
	}
	slices.Sort(c.largest)
	return c.largest
}

// cycles finds strongly connected components: R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1 (1972).
type cycles struct {
	graph
	index, low map[string]int // from 1, in the order of the visits
	stack      []string
	onStack    map[string]bool
	largest    []string
}

func (c *cycles) visit(file string) {
	c.index[file] = len(c.index) + 1
	c.low[file] = c.index[file]
	c.stack, c.onStack[file] = append(c.stack, file), true
	for next := range c.graph[file] {
		if c.index[next] == 0 {
			c.visit(next)
			c.low[file] = min(c.low[file], c.low[next])
		} else if c.onStack[next] {
			c.low[file] = min(c.low[file], c.index[next])
		}
	}
	if c.low[file] != c.index[file] {
		return
	}
	at := slices.Index(c.stack, file)
	component := slices.Clone(c.stack[at:])
	c.stack = c.stack[:at]
	for _, f := range component {
		c.onStack[f] = false
	}
	if len(component) > max(1, len(c.largest)) {
		c.largest = component
	}
}
