package dashboard

import (
	"slices"
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// plotHeight is the height of the bars' area in pixels. Horizontal sizes are in percent, so that text keeps its size.
const plotHeight = 96

// A plot is a bar chart of the durations of the newest runs.
type plot struct {
	Bars           []bar
	Most, Median   string
	MedianY        string
	Height, Bottom int
}

// A bar is the bar of a run.
type bar struct {
	Mark                 mark
	X, Width, Y, H, Mid  string
	Href, Title, Outcome string
}

// plotOf returns the plot of the runs among the records, or nil if fewer than two have a duration.
func plotOf(now time.Time, newestFirst []journal.Record) *plot {
	var runs []journal.Record
	var lengths []time.Duration
	for _, r := range slices.Backward(newestFirst) {
		if d, ok := durationOf(now, r); ok {
			runs, lengths = append(runs, r), append(lengths, d)
		}
	}
	if len(runs) < 2 {
		return nil
	}
	most := max(slices.Max(lengths), time.Millisecond)
	height := func(d time.Duration) float64 { return max(float64(d)/float64(most)*plotHeight, 2) }
	p := &plot{Most: durationText(most), Height: plotHeight + 22, Bottom: plotHeight + 15}
	step := 100 / float64(max(len(runs), 12))
	for i, r := range runs {
		tall := height(lengths[i])
		p.Bars = append(p.Bars, bar{Mark: markOf(r.Outcome), X: percent(float64(i) * step), Width: percent(step * .72), Y: decimal(plotHeight - tall), H: decimal(tall),
			Mid: percent((float64(i) + .36) * step), Href: runPath(r), Outcome: cleanText(r.Outcome), Title: cleanText(r.Outcome) + ", " + durationText(lengths[i]) + ", " + r.When().UTC().Format(stamp)})
	}
	slices.Sort(lengths)
	median := lengths[len(lengths)/2]
	p.Median, p.MedianY = durationText(median), decimal(plotHeight-height(median))
	return p
}

func percent(f float64) string { return decimal(f) + "%" }

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
