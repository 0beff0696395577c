package engine

import "github.com/cronclave/cronclave/internal/lease/single"

// one is the store of a client of one master.
func (c *Client) one() *single.Store {
	s, _ := c.store.(*single.Store)
	return s
}
