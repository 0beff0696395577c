package replica

import (
	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
)

// A clockWatch warns if this machine's clock is off. It warns again only after the clock has been right.
type clockWatch struct{ off bool }

// checkOffset checks the offset of this machine's clock. After a warning, the clock counts as right only below half of operator.MaxClockOffset, so that an
// offset near the limit does not fill the log.
func (w *clockWatch) checkOffset(o cluster.ClockOffset, log hclog.Logger) {
	switch {
	case !w.off && o.Excessive():
		w.off = true
		log.Warn("this machine's clock differs from that of Redis; ticks still run once and on time, but synchronize the clock (NTP)", "code", cluster.CodeClockOff, "offset_ms", o.MS, "error_ms", o.ErrorMS)
	case w.off && o.Least() < cluster.MaxClockOffset/2:
		w.off = false
		log.Info("this machine's clock agrees with that of Redis again", "offset_ms", o.MS, "error_ms", o.ErrorMS)
	}
}
