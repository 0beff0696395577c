package dashboard

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/cluster"
)

const (
	// feedDays is the number of days ahead in a calendar feed.
	feedDays = 14
	// mostOften is the maximum number of events of one job in a feed. A job that ticks more often than hourly would hide all others, and is left out.
	mostOften = 24 * feedDays
	// mostEvents is the maximum number of events in a feed.
	mostEvents = 5000
	// eventLength is the duration of an event. A tick has no duration of its own, but calendar programs need one.
	eventLength = "PT5M"
)

// serveFeed serves the coming ticks as an iCalendar feed (RFC 5545).
func (h *handler) serveFeed(w http.ResponseWriter, r *http.Request) {
	st, ticks, err := h.feedTicks(r)
	if err != nil {
		h.renderPage(w, r, failedPage(err))
		return
	}
	w.Header().Set("Content-Type", "text/calendar; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="cronclave.ics"`)
	_, _ = w.Write(icalOf(st, ticks))
}

// feedTicks returns the coming ticks of the jobs that match the filter of a request.
func (h *handler) feedTicks(r *http.Request) (*cluster.Status, []cluster.Tick, error) {
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, nil, err
	}
	names, _, err := h.splitByLoad(r.Context(), st, filterOf(r.URL.Query()), dayOf(st.Now.UTC()))
	if err != nil {
		return nil, nil, err
	}
	ticks, err := h.ticksOf(r.Context(), names, cluster.Window{From: st.Now, Until: st.Now.AddDate(0, 0, feedDays), Limit: mostCounted})
	return st, ticks, err
}

func icalOf(st *cluster.Status, ticks []cluster.Tick) []byte {
	often := map[string]int{}
	for _, t := range ticks {
		often[t.Job]++
	}
	var b bytes.Buffer
	for _, line := range []string{"BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//cronclave//dashboard//EN", "CALSCALE:GREGORIAN", "X-WR-CALNAME:" + icalText("cronclave "+st.Namespace)} {
		foldLine(&b, line)
	}
	const utc = "20060102T150405Z"
	events := 0
	for _, t := range ticks {
		if often[t.Job] > mostOften || events == mostEvents {
			continue
		}
		events++
		for _, line := range []string{"BEGIN:VEVENT", fmt.Sprintf("UID:%s-%d@%s.cronclave", t.Job, t.At.Unix(), st.Namespace), "DTSTAMP:" + st.Now.UTC().Format(utc),
			"DTSTART:" + t.At.UTC().Format(utc), "DURATION:" + eventLength, "SUMMARY:" + icalText(t.Job), "DESCRIPTION:" + icalText("tick at "+t.At.In(t.Zone).Format(time.RFC1123)),
			"TRANSP:TRANSPARENT", "END:VEVENT"} {
			foldLine(&b, line)
		}
	}
	foldLine(&b, "END:VCALENDAR")
	return b.Bytes()
}

// icalText escapes text for iCalendar.
func icalText(s string) string {
	return strings.NewReplacer(`\`, `\\`, ";", `\;`, ",", `\,`, "\n", `\n`).Replace(cleanText(s))
}

// foldLine writes a line in pieces of at most 75 bytes, as iCalendar requires. It does not split characters.
func foldLine(b *bytes.Buffer, line string) {
	most := 75
	for len(line) > most {
		n := most
		for n > 0 && !utf8.RuneStart(line[n]) {
			n--
		}
		b.WriteString(line[:n] + "\r\n ")
		line, most = line[n:], 74
	}
	b.WriteString(line + "\r\n")
}
