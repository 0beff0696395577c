// Package transport has helpers for calls to Redis through go-redis: it classifies errors, decodes replies, and recovers from panics of go-redis.
package transport

import "github.com/redis/go-redis/v9"

// A Client is a client of a Redis server, of a master behind Sentinels, or of a Cluster.
type Client = redis.UniversalClient

// ObeysContext reports whether a client returns from a call when the context ends. Otherwise a call on a hung socket could last longer than a lease.
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

// Number returns a value as a number; 0 if it is not a number.
func Number(v any) int64 { n, _ := v.(int64); return n }

// Text returns a value as a text; "" if it is not a text.
func Text(v any) string { s, _ := v.(string); return s }
