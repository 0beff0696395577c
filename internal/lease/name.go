package lease

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// KeyParts has the suffixes of a lock's keys. A key is the name of the lock, a colon, and a suffix.
var KeyParts = []string{"ledger", "orphans", "queue", "patience", "dead", "fence"}

// CheckName returns an error for a name whose keys would be on different nodes of a Cluster, or would be keys of another lock.
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

// QuoteNames returns at most five quoted names for an error, and the number of the others.
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
