// Package transport is the ground on which every store talks to Redis through go-redis: which errors leave an outcome unknown, which replies are
// damaged, and a client that can't end the process.
package transport

import "github.com/redis/go-redis/v9"

// Client is a client of a server, of a master that Sentinels watch, or of a Cluster.
type Client = redis.UniversalClient

// ObeysContext reports whether a client gives a call up when its context ends. Without it a hung socket can outlast a lease.
func ObeysContext(c Client) bool {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return true
}

// Values are values of a reply. A missing value is zero.
type Values []any

// Number is the value at a place as a number.
func (v Values) Number(i int) int64 { return Number(v.at(i)) }

// Text is the value at a place as a text.
func (v Values) Text(i int) string { return Text(v.at(i)) }

// List is the value at a place as a list.
func (v Values) List(i int) []any { l, _ := v.at(i).([]any); return l }

func (v Values) at(i int) any {
	if i >= len(v) {
		return nil
	}
	return v[i]
}

// Number is a value as a number; 0 if it is none.
func Number(v any) int64 { n, _ := v.(int64); return n }

// Text is a value as a text; "" if it is none.
func Text(v any) string { s, _ := v.(string); return s }
