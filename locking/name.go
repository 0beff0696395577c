package locking

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/lease"
)

// Name is the name of a fine-grained lock, one for each thing of a kind: Name("orders", "17") is "orders:17".
// Two names are equal only if the kind and all ids are, whatever they contain: separators, braces, percent signs
// and control characters are written as %3A and the like. The kind must not be empty.
//
// Each such lock is on whichever node of a Cluster its whole name leads to, so that a kind's locks spread over all of them. Locks
// that are taken together, see [Client.MultiLock], are named by [Tagged].
//
// A caller that holds one lock and waits for another can wait for ever, if another caller does so the other way
// round. The order of the names prevents that, byte by byte, as [slices.Sort] has it: take the smaller name
// first, everywhere. [Client.MultiLock] needs none: it holds nothing while it waits.
func Name(kind string, ids ...string) string {
	return strings.Join(escaped(append([]string{kind}, ids...)), ":")
}

// Tagged is [Name] with the kind as the hash tag: Tagged("orders", "17") is "{orders}:17". All locks of the kind are on one node of a
// Cluster then, as [Client.MultiLock] needs it.
func Tagged(kind string, ids ...string) string {
	parts := escaped(append([]string{kind}, ids...))
	for i, id := range parts[1:] {
		if slices.Contains(lease.KeyParts, id) { // "{orders}:queue" is a key of the lock "{orders}"
			parts[i+1] = percent(id[0]) + id[1:]
		}
	}
	parts[0] = "{" + parts[0] + "}"
	return strings.Join(parts, ":")
}

// escaped returns the parts without the characters that have a meaning between them.
func escaped(parts []string) []string {
	out := make([]string, len(parts))
	for i, part := range parts {
		var b strings.Builder
		for _, c := range []byte(part) {
			if c < ' ' || c == 0x7f || strings.IndexByte("%:{}", c) >= 0 {
				b.WriteString(percent(c))
			} else {
				b.WriteByte(c)
			}
		}
		out[i] = b.String()
	}
	return out
}

func percent(c byte) string { return fmt.Sprintf("%%%02X", c) }
