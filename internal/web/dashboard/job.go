package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/units"
)

const (
	// runsOfAJob is the number of records on the page of a job.
	runsOfAJob = 50
	// ticksOfAJob is the number of coming ticks on the page of a job.
	ticksOfAJob = 6
)

type jobPage struct {
	Name, URL       string
	Mark            mark
	Verdict         string   // last outcome
	Ended           moment   // time of that outcome
	Notes           []string // more about the verdict
	Problems        []problem
	Explanation     *explanation // see explainNewest
	Facts           []detail
	Holders         []holder
	Ticks           []coming
	TicksIn         moment // the first of Ticks
	Zone            string
	Plot            *plot
	Records         records
	Settings        *settings
	Outputs         []output
	Paused, Removed bool
	CanTrigger      bool
}

// A coming is a future tick of a job. Here has its time in the job's time zone, with the date if that differs from the date of the tick before.
type coming struct {
	At   moment
	Here string
}

func (h *handler) showJob(r *http.Request) (*page, error) {
	ctx, name := r.Context(), r.PathValue("job")
	st, err := h.readStatus(ctx)
	if err != nil {
		return nil, err
	}
	past, err := h.operator.History(ctx, cluster.HistoryRequest{Job: name, Limit: runsOfAJob})
	if err != nil {
		return nil, err
	}
	p := pageOf("job", "Job "+cleanText(name), st)
	p.Every = renewMS
	body := &jobPage{Name: cleanText(name), URL: jobPath(name), Records: recordsOf(st.Now, "Newest runs", past.Records), Plot: plotOf(st.Now, past.Records)}
	body.Explanation = h.explainNewest(ctx, st.Now, name, past.Records)
	if body.Outputs, err = h.newestOutputs(ctx, name, past.Records); err != nil {
		return nil, err
	}
	p.Body = body
	i := slices.IndexFunc(st.Jobs, func(j cluster.Job) bool { return j.Name == name })
	if i < 0 {
		body.Removed, body.Mark, body.Verdict = true, markNotRun, "no replica has this job any more"
		return p, nil
	}
	body.addDescription(st, &st.Jobs[i])
	usual, known, err := h.operator.Usual(ctx, name)
	if err != nil {
		return nil, err
	}
	if known {
		body.Notes = append(body.Notes, "usually takes "+durationText(usual))
	}
	body.Settings = shownSettings(h.operator.Settings(ctx, st.Replicas, name))
	return p, h.addTicks(ctx, body, st.Now, &st.Jobs[i])
}

func (b *jobPage) addDescription(st *cluster.Status, j *cluster.Job) {
	e := endOf(st.Now, j)
	b.Mark, b.Verdict, b.Ended = e.Mark, e.Outcome, e.When
	if e.Outcome == "" {
		b.Mark, b.Verdict = markNotRun, "never ran"
	}
	if len(j.Holders) > 0 {
		b.Notes = append(b.Notes, "runs now")
	}
	for _, p := range st.Problems {
		if concernsJob(p, j.Name) {
			line := problemOf(st.Now, p)
			if p.Code == cluster.CodeConfigDiffers {
				line.Href = "#s-settings"
			}
			b.Problems = append(b.Problems, line)
		}
	}
	b.Holders, b.Paused, b.CanTrigger, b.Zone = holdersOf(st.Now, j), j.Paused, j.Enabled, cleanText(j.Timezone)
	b.Facts = factsOfJob(j)
}

// concernsJob reports whether a problem is about a job. Some warnings contain the job only in their message.
func concernsJob(p cluster.Problem, job string) bool {
	if p.Code == cluster.CodeConfigDiffers {
		return strings.HasPrefix(p.Message, "the configurations differ: job "+job+": ")
	}
	return p.Job == job
}

func factsOfJob(j *cluster.Job) []detail {
	facts := []detail{{"Schedule", cleanText(console.Scheduled(j.Schedule, j.After))}, {"Zone", cleanText(j.Timezone)}, {"Slots", fmt.Sprintf("%d of %d held", len(j.Holders), max(j.Parallel, 1))}}
	if len(j.Tags) > 0 {
		facts = append(facts, detail{"Tags", cleanText(strings.Join(j.Tags, ", "))})
	}
	if len(j.Where) > 0 {
		facts = append(facts, detail{"Runs where", cleanText(cluster.FormatLabels(j.Where))})
	}
	if !j.Enabled {
		facts = append(facts, detail{"Enabled", "no: it has no ticks"})
	}
	if j.Paused {
		text := "since " + j.PausedSince.UTC().Format(stamp)
		if j.PausedUntil != nil {
			text += ", until " + j.PausedUntil.UTC().Format(stamp)
		}
		if note := pausedBy(j); note != "" {
			text += ", " + note
		}
		facts = append(facts, detail{"Paused", text})
	}
	return facts
}

func (h *handler) addTicks(ctx context.Context, b *jobPage, now time.Time, j *cluster.Job) error {
	ticks, err := h.operator.NextTicks(ctx, []string{j.Name}, cluster.Window{From: now, Limit: ticksOfAJob})
	if err != nil {
		return err
	}
	day := ""
	for i, t := range ticks {
		at := t.At.In(t.Zone)
		c := coming{momentOf(now, at), at.Format("15:04:05")}
		if i == 0 {
			b.TicksIn = c.At
		}
		if date := at.Format("Mon 2006-01-02 "); date != day {
			c.Here, day = date+c.Here, date
		}
		b.Ticks = append(b.Ticks, c)
	}
	return nil
}

// explainNewest explains the newest tick that did not end well, among the latest records. If they all ended well, it explains the newest tick. It returns nil
// if there is no tick. It ignores errors, because the page is useful without the explanation.
func (h *handler) explainNewest(ctx context.Context, now time.Time, job string, newestFirst []journal.Record) *explanation {
	i := slices.IndexFunc(newestFirst, func(r journal.Record) bool { return !r.Tick.IsZero() })
	if i < 0 {
		return nil
	}
	for k, r := range newestFirst[:min(cluster.RecentRuns, len(newestFirst))] {
		if r.Outcome != journal.OutcomeOK && r.Outcome != journal.OutcomeRunning && !r.Tick.IsZero() {
			i = k
			break
		}
	}
	s, err := h.operator.Why(ctx, job, newestFirst[i].Tick.UTC().Format(time.RFC3339))
	if err != nil {
		return nil
	}
	return explanationOf(now, s)
}

// settings are the settings of a job on all replicas. Replicas with the same settings of the job are one group. Keys whose values differ between groups are
// shown side by side.
type settings struct {
	Mark      mark
	Note      string
	Replicas  []string // for each group with known settings, its replicas
	Differing []setting
	Same      []setting
	Others    []detail // for each group with unknown settings, its replicas
	More      string
}

// A setting is a key with its value in each group, or with one value if all groups agree.
type setting struct {
	Key    string
	Values []string
}

func shownSettings(s *cluster.JobSettings) *settings {
	shown := &settings{Mark: markOK, Note: cleanText(console.Agreement(s))}
	if s.Agreement != cluster.SettingsAgree || s.Fault != "" {
		shown.Mark = markWarning
	}
	if s.More > 0 {
		shown.More = units.Count(s.More, "more form") + " not shown."
	}
	var known []cluster.JobForm
	for _, f := range s.Forms {
		if note := console.FormNote(f); note != "" {
			shown.Others = append(shown.Others, detail{cleanText(console.Replicas(f)), note})
			continue
		}
		known = append(known, f)
		shown.Replicas = append(shown.Replicas, cleanText(console.Replicas(f)))
	}
	for _, key := range s.Keys() {
		row := setting{Key: cleanText(key)}
		if !slices.Contains(s.Differing, key) {
			value, _ := known[0].Setting(key)
			row.Values = []string{cleanText(value)}
			shown.Same = append(shown.Same, row)
			continue
		}
		for _, f := range known {
			value, ok := f.Setting(key)
			if !ok {
				value = console.NoSuchKey
			}
			row.Values = append(row.Values, cleanText(value))
		}
		shown.Differing = append(shown.Differing, row)
	}
	return shown
}

// plotHeight is the height of the bars' area in pixels. Horizontal sizes are in percent, so that text keeps its size.
const plotHeight = 96

// A plot is a bar chart of the durations of the newest runs.
type plot struct {
	Bars           []bar
	Most, Median   string
	MedianY        string
	Height, Bottom int
}

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

type explanation struct {
	Job, JobHref, At, Phase, Href string
	Mark                          mark
	Lines                         []string
	Records                       records
}

func explanationOf(now time.Time, s *cluster.Explanation) *explanation {
	t := &explanation{Job: cleanText(s.Job), JobHref: jobPath(s.Job), At: s.At.Format(stamp), Phase: string(s.Phase), Href: whyPath(s.Job, s.At), Mark: phaseMarks[s.Phase], Records: recordsOf(now, "Records of the tick", s.Runs)}
	if t.Mark == (mark{}) {
		t.Mark = markAdvice
	}
	if s.Phase == cluster.PhaseOver && len(s.Runs) > 0 {
		t.Mark = markOf(s.Runs[len(s.Runs)-1].Outcome)
	}
	for _, l := range s.Lines {
		t.Lines = append(t.Lines, cleanText(l))
	}
	return t
}

var phaseMarks = map[cluster.Phase]mark{cluster.PhaseDue: markComing, cluster.PhaseOpen: markWarning, cluster.PhaseRunning: markRunning}

func (h *handler) showWhy(r *http.Request) (*page, error) {
	now, err := h.operator.Now(r.Context())
	if err != nil {
		return nil, err
	}
	s, err := h.operator.Why(r.Context(), r.PathValue("job"), strings.TrimSpace(r.URL.Query().Get("at")))
	if err != nil {
		return nil, err
	}
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, err
	}
	p := pageOf("why", fmt.Sprintf("%s at %s", cleanText(s.Job), s.At.Format(stamp)), st)
	p.Now, p.Body = now, explanationOf(now, s)
	if slices.Contains([]cluster.Phase{cluster.PhaseDue, cluster.PhaseOpen, cluster.PhaseRunning}, s.Phase) {
		p.Every = renewMS
	}
	return p, nil
}
