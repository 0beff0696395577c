package engine

// one is the store of a client of one master.
func (c *Client) one() *single {
	s, _ := c.store.(*single)
	return s
}
