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
func (j *Journal) claim(ctx context.Context, p redis.Pipeliner, w *jobWrite, r word) {
	records, name := j.jobKey(w.job, "records"), field(r.weight(), r.RunID)
	other := map[byte]byte{weightEnd: weightAbandoned, weightAbandoned: weightEnd}[r.weight()]
	if r.weight() == weightRunning && r.Attempt > 1 { // its replica alone says so, one attempt after the other
		p.HSet(ctx, records, name, r.text)
		return
	}
	if j.first == nil || other == 0 {
		p.HSetNX(ctx, records, name, r.text)
		return
	}
	c := claim{word: r, key: w.job + "|" + r.RunID, ended: p.HExists(ctx, records, field(other, r.RunID))}
	c.set = p.HSetNX(ctx, records, name, r.text)
	if j.doubted(c.key) {
		c.stands = p.HGet(ctx, records, name)
	}
	w.claims = append(w.claims, c)
}

// mostUnsure bounds the memory of writes without an answer. A record beyond it may not be counted.
const mostUnsure = 20_000

// reportFirst passes on the records that were the first to end their runs. A write without an answer is repeated, and was the first if its record is in
// Redis then.
func (j *Journal) reportFirst(jobs []*jobWrite) {
	for _, w := range jobs {
		for _, c := range w.claims {
			if c.failed() {
				j.doubt(c.key)
				continue
			}
			j.sure(c.key)
			if c.isFirst() {
				j.first(c.Record)
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

func (j *Journal) doubt(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.unsure) < mostUnsure {
		j.unsure[key] = true
	}
}

func (j *Journal) doubted(key string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.unsure[key]
}

func (j *Journal) sure(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.unsure, key)
}
