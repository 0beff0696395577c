package locking

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/lease"
)

// Name returns the name of a fine-grained lock, one for each thing of a kind: Name("orders", "17") is "orders:17". Two names are equal only if the
// kind and all ids are, whatever they contain: separators, braces, percent signs and control characters are written as %3A and the like. The kind
// must not be empty.
//
// The whole name determines the node of a Cluster, so that the locks of a kind spread over all nodes. For locks that are taken together, see
// [Client.MultiLock], use [Tagged].
//
// A caller that holds one lock and waits for another can wait for ever, if another caller takes them in the other order. To prevent that, take the
// smaller name first, everywhere, byte by byte as [slices.Sort] orders them. [Client.MultiLock] does not need this, because it holds nothing while it
// waits.
func Name(kind string, ids ...string) string {
	return strings.Join(escapeParts(append([]string{kind}, ids...)), ":")
}

// Tagged is [Name] with the kind as the hash tag: Tagged("orders", "17") is "{orders}:17". All locks of the kind are then on one node of a Cluster,
// as [Client.MultiLock] requires.
func Tagged(kind string, ids ...string) string {
	parts := escapeParts(append([]string{kind}, ids...))
	for i, id := range parts[1:] {
		if slices.Contains(lease.KeyParts, id) { // "{orders}:queue" is a key of the lock "{orders}"
			parts[i+1] = percentEncode(id[0]) + id[1:]
		}
	}
	parts[0] = "{" + parts[0] + "}"
	return strings.Join(parts, ":")
}

// escapeParts returns the parts without the characters that have a meaning between them.
func escapeParts(parts []string) []string {
	out := make([]string, len(parts))
	for i, part := range parts {
		var b strings.Builder
		for _, c := range []byte(part) {
			if c < ' ' || c == 0x7f || strings.IndexByte("%:{}", c) >= 0 {
				b.WriteString(percentEncode(c))
			} else {
				b.WriteByte(c)
			}
		}
		out[i] = b.String()
	}
	return out
}

func percentEncode(c byte) string { return fmt.Sprintf("%%%02X", c) }
