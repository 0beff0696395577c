package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
)

// A Journal keeps the outcomes of ticks and runs for display. The scheduler makes no decision from it.
type Journal interface {
	// Record stores records. It is called again with the same records after an error, so it must be idempotent by RunID. It is called by one goroutine
	// at a time.
	Record(ctx context.Context, records []Record) error
}

// A Recorder writes records to the journal in batches. Records that are added while a batch is being written go into the next batch. While writes
// fail, up to maxWaiting records wait. If there are more, the recorder drops the oldest and logs a warning.
type Recorder struct {
	journal Journal
	log     hclog.Logger
	wake    chan struct{} // wakes the goroutine of run when a record is added; capacity 1, so that Add does not block
	failing atomic.Bool   // the last write failed

	mu      sync.Mutex
	waiting []waitingRecord
	pending map[recordKey]*Receipt // the receipts of queued records, and of records being written
	ended   bool                   // the recorder accepts no more records
}

type waitingRecord struct {
	Record
	receipt *Receipt
}

// A recordKey identifies a record. Records with equal keys are the same record.
type recordKey struct {
	runID   string
	outcome Outcome
	attempt int
}

func (r *Record) key() recordKey { return recordKey{r.RunID, r.Outcome, r.Attempt} }

// A Receipt reports whether a record was written.
type Receipt struct {
	done chan struct{} // closed when the record was written or dropped
	err  error         // the reason if the record was dropped; read only after done is closed
}

func (r *Receipt) settle(err error) {
	r.err = err
	close(r.done)
}

// Failed reports whether the record was dropped.
func (r *Receipt) Failed() bool {
	select {
	case <-r.done:
		return r.err != nil
	default:
		return false
	}
}

// Succeeded reports whether the record was written.
func (r *Receipt) Succeeded() bool {
	select {
	case <-r.done:
		return r.err == nil
	default:
		return false
	}
}

// Wait waits until the record is written. It returns an error if the record was dropped, or if ctx ends first.
func (r *Receipt) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("history does not answer: %w", ctx.Err())
	}
}

// RecordTimeout bounds one write to the journal.
const RecordTimeout = 2 * time.Second

const (
	maxWaiting     = 10_000
	dropAtOnce     = maxWaiting / 10 // the number of records that are dropped at once, so that there is one log line for all of them
	maxRecordBatch = 500
	lastWords      = 2 * time.Second // the time for which the recorder retries the last records before it ends
)

var (
	errDropped = errors.New("history unavailable: the record was dropped")
	errEnded   = errors.New("the recorder is closed")
)

func newRecorder(journal Journal, log hclog.Logger) *Recorder {
	return &Recorder{journal: journal, log: log, wake: make(chan struct{}, 1), pending: map[recordKey]*Receipt{}}
}

// HasJournal reports whether there is a journal that keeps the records.
func (r *Recorder) HasJournal() bool { return r.journal != nil }

// Add queues a record, unless the same record is already queued, and returns its receipt. Without a journal, every record counts as written.
func (r *Recorder) Add(record Record) (written *Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := record.key()
	if w, ok := r.pending[key]; ok {
		return w
	}
	w := &Receipt{done: make(chan struct{})}
	switch {
	case r.journal == nil:
		w.settle(nil)
		return w
	case r.ended:
		w.settle(errEnded)
		return w
	}
	r.pending[key] = w
	r.waiting = append(r.waiting, waitingRecord{record, w})
	if len(r.waiting) > maxWaiting {
		r.settleReceipts(r.waiting[:dropAtOnce], errDropped)
		r.waiting = slices.Clone(r.waiting[dropAtOnce:])
		r.log.Warn("history unavailable: oldest records dropped", "dropped", dropAtOnce)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return w
}

// settleReceipts settles the receipts of written or dropped records. The caller holds mu.
func (r *Recorder) settleReceipts(records []waitingRecord, err error) {
	for _, w := range records {
		delete(r.pending, w.key())
		w.receipt.settle(err)
	}
}

// run writes queued records until ctx ends. It then writes the remaining records for at most lastWords, or until parting ends.
func (r *Recorder) run(ctx, parting context.Context) {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { context.AfterFunc(parting, cancel) })()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, cancel) })()
	for {
		batch := r.takeBatch()
		if len(batch) > 0 {
			r.writeBatch(hard, batch)
			continue
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			if r.closeIfEmpty() {
				return
			}
		}
	}
}

// openQueue makes Add accept records. It is called before run.
func (r *Recorder) openQueue() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = false
}

func (r *Recorder) takeBatch() []waitingRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.waiting), maxRecordBatch)
	batch := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	return batch
}

// closeIfEmpty reports whether the queue is empty. If it is, Add refuses records from now on.
func (r *Recorder) closeIfEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = len(r.waiting) == 0
	return r.ended
}

func (r *Recorder) writeBatch(hard context.Context, batch []waitingRecord) {
	err := r.retryWrite(hard, batch)
	if err != nil {
		r.log.Error("records lost: history unavailable", "records", len(batch), "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settleReceipts(batch, err)
}

func (r *Recorder) retryWrite(hard context.Context, batch []waitingRecord) error {
	records := make([]Record, len(batch))
	for i, w := range batch {
		records[i] = w.Record
	}
	retry := newBackoff()
	for first := true; ; first = false {
		ctx, cancel := context.WithTimeout(hard, RecordTimeout)
		err := r.journal.Record(ctx, records)
		cancel()
		r.failing.Store(err != nil)
		if err == nil {
			return nil
		}
		if first {
			r.log.Warn("history unavailable; trying again", "records", len(records), "error", err)
		}
		if !retry.Wait(hard) {
			return err
		}
	}
}

const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

func newBackoff() *backoff.Backoff { return backoff.New(shortestPause, longestPause) }
