package locking

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/lease"
)

// Name returns the name of a fine-grained lock, such as a lock for each order: Name("orders", "17") is "orders:17". Different arguments give
// different names, because colons, braces, percent signs and control characters are percent-encoded, such as %3A for a colon. The kind must not be
// empty.
//
// On a Redis Cluster, the whole name determines the node, so the locks of a kind spread over all nodes. For the locks of a [Client.MultiLock], which
// must be on one node, use [Tagged].
//
// Two callers that take two locks one by one, in different orders, can deadlock. To prevent that, all callers must take the smaller name first, in
// the order of [slices.Sort]. [Client.MultiLock] cannot deadlock, because it holds no lock while it waits.
func Name(kind string, ids ...string) string {
	return strings.Join(escapeParts(append([]string{kind}, ids...)), ":")
}

// Tagged is [Name] with the kind as the hash tag: Tagged("orders", "17") is "{orders}:17". All locks of the kind are then on one node of a Redis
// Cluster, as [Client.MultiLock] requires.
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

// escapeParts percent-encodes control characters, the separator, braces and the percent sign, which have a meaning in names.
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
