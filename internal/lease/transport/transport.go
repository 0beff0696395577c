// Package transport has what all stores need to talk to Redis through go-redis: the errors that leave an outcome unknown, the replies that are
// damaged, and calls that cannot panic.
package transport

import "github.com/redis/go-redis/v9"

// A Client is a client of a server, of a master that Sentinels watch, or of a Cluster.
type Client = redis.UniversalClient

// ObeysContext reports whether a client gives a call up when its context ends. Without that, a hung socket could outlast a lease.
func ObeysContext(c Client) bool {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return true
}

// Values has values of a reply. A missing value is zero.
type Values []any

// Number returns the value at an index as a number.
func (v Values) Number(i int) int64 { return Number(v.at(i)) }

// Text returns the value at an index as a text.
func (v Values) Text(i int) string { return Text(v.at(i)) }

// List returns the value at an index as a list.
func (v Values) List(i int) []any { l, _ := v.at(i).([]any); return l }

func (v Values) at(i int) any {
	if i >= len(v) {
		return nil
	}
	return v[i]
}

// Number returns a value as a number; 0 if it is none.
func Number(v any) int64 { n, _ := v.(int64); return n }

// Text returns a value as a text; "" if it is none.
func Text(v any) string { s, _ := v.(string); return s }
