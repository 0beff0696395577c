package journal

import (
	"bytes"
	"context"

	"github.com/redis/go-redis/v9"
)

// claim is an attempt to be the first to tell the end of a run.
type claim struct {
	word
	ended *redis.BoolCmd // whether it had ended before, by a word of another weight
	set   *redis.BoolCmd // whether no word of this weight stood there
}

// claim queues a word, and what tells whether it is the first that ends its run.
func (w *jobWrite) claim(ctx context.Context, p redis.Pipeliner, records string, r word, wanted bool) {
	other := map[byte]byte{weightEnd: weightAbandoned, weightAbandoned: weightEnd}[r.weight()]
	if !wanted || other == 0 {
		p.HSetNX(ctx, records, field(r.weight(), r.RunID), r.text)
		return
	}
	c := claim{word: r, ended: p.HExists(ctx, records, field(other, r.RunID))}
	c.set = p.HSetNX(ctx, records, field(r.weight(), r.RunID), r.text)
	w.claims = append(w.claims, c)
}

// mostUnsure bounds what is remembered of writes that were not answered. Beyond that a record may be counted by nobody.
const mostUnsure = 20_000

// tellFirst tells of the words that were the first to end their runs. One whose write was not answered is written again, and was the first if it
// is what stands there then.
func (j *Journal) tellFirst(ctx context.Context, jobs []*jobWrite) {
	for _, w := range jobs {
		for _, c := range w.claims {
			switch key := w.job + "|" + c.RunID; {
			case c.set.Err() != nil || c.ended.Err() != nil:
				j.doubt(key)
			case c.ended.Val():
				j.sure(key)
			case c.set.Val():
				j.sure(key)
				j.first(c.Record)
			case j.doubted(key):
				text, err := j.redis.HGet(ctx, j.jobKey(w.job, "records"), field(c.weight(), c.RunID)).Bytes()
				j.sure(key)
				if err == nil && bytes.Equal(text, c.text) {
					j.first(c.Record)
				}
			}
		}
	}
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
