package engine

import "github.com/cronclave/cronclave/internal/lease/redis"

// one is the store of a client of one master.
func (c *Client) one() *redis.Store {
	s, _ := c.store.(*redis.Store)
	return s
}
