package journal

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// claim is an attempt to be the first to report the end of a run.
type claim struct {
	word
	key    string
	ended  *redis.BoolCmd   // whether it had ended before, by a word of another weight
	set    *redis.BoolCmd   // whether no word of this weight stood there
	stands *redis.StringCmd // the word of this weight; nil if none was written before
}

// claim queues a record and the question whether it is the first that ends its run. The write carries the question, because an answered write is not
// repeated, and after an outage there are many.
func (h *history) claim(ctx context.Context, p redis.Pipeliner, w *jobWrite, r word) {
	records, name := h.jobKey(w.job, "records"), field(r.weight(), r.RunID)
	other := map[byte]byte{weightEnd: weightAbandoned, weightAbandoned: weightEnd}[r.weight()]
	if r.weight() == weightRunning && r.Attempt > 1 { // its replica alone says so, one attempt after the other
		p.HSet(ctx, records, name, r.text)
		return
	}
	if h.first == nil || other == 0 {
		p.HSetNX(ctx, records, name, r.text)
		return
	}
	c := claim{word: r, key: w.job + "|" + r.RunID, ended: p.HExists(ctx, records, field(other, r.RunID))}
	c.set = p.HSetNX(ctx, records, name, r.text)
	if h.doubted(c.key) {
		c.stands = p.HGet(ctx, records, name)
	}
	w.claims = append(w.claims, c)
}

// mostUnsure bounds the memory of writes without an answer. A record beyond it may not be counted.
const mostUnsure = 20_000

// reportFirst passes on the records that were the first to end their runs. A write without an answer is repeated, and was the first if its record is in
// Redis then.
func (h *history) reportFirst(jobs []*jobWrite) {
	for _, w := range jobs {
		for _, c := range w.claims {
			if c.failed() {
				h.doubt(c.key)
				continue
			}
			h.sure(c.key)
			if c.isFirst() {
				h.first(c.Record)
			}
		}
	}
}

func (c *claim) failed() bool {
	return c.set.Err() != nil || c.ended.Err() != nil || c.stands != nil && c.stands.Err() != nil
}

func (c *claim) isFirst() bool {
	return !c.ended.Val() && (c.set.Val() || c.stands != nil && c.stands.Val() == string(c.text))
}

func (h *history) doubt(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.unsure) < mostUnsure {
		h.unsure[key] = true
	}
}

func (h *history) doubted(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unsure[key]
}

func (h *history) sure(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.unsure, key)
}
