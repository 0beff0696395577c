package journal

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A claim is the write of a record that may be the first to end its run. Only the first one is passed to Config.First.
type claim struct {
	word
	key    string
	ended  *redis.BoolCmd   // whether the run had already ended, with a record of another weight
	set    *redis.BoolCmd   // whether the run had no record of this weight
	stands *redis.StringCmd // the stored record of this weight; nil if Redis has answered all earlier writes of this record
}

// queueClaim queues the write of a record. The same MULTI queries whether the record is the first to end its run. A separate query would cost a round trip for
// each of the many records after an outage. If it failed, nothing would repeat it, because an answered write is not repeated.
func (h *history) queueClaim(ctx context.Context, p redis.Pipeliner, w *jobWrite, r word) {
	records, name := h.jobKey(w.job, "records"), fieldName(r.weight(), r.RunID)
	other := map[byte]byte{weightEnd: weightAbandoned, weightAbandoned: weightEnd}[r.weight()]
	if r.weight() == weightRunning && r.Attempt > 1 { // only the replica of the run writes these, one attempt after the other
		p.HSet(ctx, records, name, r.text)
		return
	}
	if h.first == nil || other == 0 {
		p.HSetNX(ctx, records, name, r.text)
		return
	}
	c := claim{word: r, key: w.job + "|" + r.RunID, ended: p.HExists(ctx, records, fieldName(other, r.RunID))}
	c.set = p.HSetNX(ctx, records, name, r.text)
	if h.isUnsure(c.key) {
		c.stands = p.HGet(ctx, records, name)
	}
	w.claims = append(w.claims, c)
}

// mostUnsure is the maximum number of unanswered writes that are remembered. Records beyond it may not be passed to Config.First.
const mostUnsure = 20_000

// reportFirst passes the records that were the first to end their runs to Config.First. A write that Redis did not answer is repeated. Its record was the first
// if Redis has exactly that record at the repetition.
func (h *history) reportFirst(jobs []*jobWrite) {
	for _, w := range jobs {
		for _, c := range w.claims {
			if c.hasFailed() {
				h.markUnsure(c.key)
				continue
			}
			h.clearUnsure(c.key)
			if c.isFirst() {
				h.first(c.Record)
			}
		}
	}
}

func (c *claim) hasFailed() bool {
	return c.set.Err() != nil || c.ended.Err() != nil || c.stands != nil && c.stands.Err() != nil
}

func (c *claim) isFirst() bool {
	return !c.ended.Val() && (c.set.Val() || c.stands != nil && c.stands.Val() == string(c.text))
}

func (h *history) markUnsure(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.unsure) < mostUnsure {
		h.unsure[key] = true
	}
}

func (h *history) isUnsure(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unsure[key]
}

func (h *history) clearUnsure(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.unsure, key)
}
