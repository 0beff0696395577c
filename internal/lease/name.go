package lease

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// KeyParts has the last parts of a lock's keys, after its name and a colon.
var KeyParts = []string{"ledger", "orphans", "queue", "patience", "dead", "fence"}

// CheckName refuses names whose keys would not share one hash slot of a Cluster, or would be keys of another lock.
func CheckName(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	if !strings.ContainsAny(name, "{}") {
		return nil
	}
	start, end := strings.IndexByte(name, '{'), strings.IndexByte(name, '}')
	if strings.Count(name, "{") != 1 || strings.Count(name, "}") != 1 || end <= start+1 {
		return errors.New("a name may have one hash tag in braces, as in {orders}:archive")
	}
	after := name[end+1:]
	last := after[strings.LastIndexByte(after, ':')+1:]
	if len(last) < len(after) && slices.Contains(KeyParts, last) {
		return fmt.Errorf("a name with a hash tag can't end with :%s: another key of that tag does", last)
	}
	if strings.Contains(after, ":dead:") {
		return errors.New("a name with a hash tag can't contain :dead: behind it: other keys of that tag do")
	}
	return nil
}

// QuoteNames returns a list of names for an error, with at most five of them.
func QuoteNames(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	var all []string
	for i, name := range names {
		if i == 5 {
			all = append(all, fmt.Sprintf("%d more", len(names)-i))
			break
		}
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}
