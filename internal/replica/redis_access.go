package replica

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/cluster"
)

const (
	accessLookEvery = 30 * time.Second
	accessWarnEvery = 24 * time.Hour
)

// An accessWatch checks the secrets and certificates for Redis. Connections last long, so a fault would otherwise show only when a new connection fails.
type accessWatch struct {
	dangers func(now time.Time) []string
	shown   *atomic.Pointer[string] // text that status shows
	log     hclog.Logger
	warned  map[string]time.Time // time of the last warning, by danger
}

// run checks the dangers periodically until ctx ends.
func (w *accessWatch) run(ctx context.Context) {
	w.warned = map[string]time.Time{}
	for ctx.Err() == nil {
		w.checkDangers(time.Now())
		backoff.Sleep(ctx, accessLookEvery)
	}
}

// checkDangers sets the text that status shows, and logs each danger once a day.
func (w *accessWatch) checkDangers(now time.Time) {
	dangers := w.dangers(now)
	const most = 300 // each registration repeats the text, every few seconds
	what := cluster.FirstLine(strings.Join(dangers, "; "), most)
	w.shown.Store(&what)
	for _, danger := range dangers {
		if last, known := w.warned[danger]; !known || now.Sub(last) >= accessWarnEvery {
			w.warned[danger] = now
			w.log.Warn("the connection to Redis is in danger", "reason", danger)
		}
	}
	for danger, last := range w.warned {
		if now.Sub(last) > 2*accessWarnEvery {
			delete(w.warned, danger)
		}
	}
}
