package redisconn

import (
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
)

// OpenJournal returns the client of the history. If first is not nil, the client calls it for each record that is the first to end a run or a tick.
func (c *Conn) OpenJournal(cfg *config.Config, first func(journal.Record)) (*journal.Journal, error) {
	return journal.New(journal.Config{Redis: c.UniversalClient, Namespace: cfg.Namespace, Runs: cfg.History.Runs, MaxAge: cfg.History.MaxAge,
		MaxBytes: cfg.History.MaxBytes, Timeout: 2 * Timeout, First: first})
}
