//go:build browser

// Package browser answers the questions of an on-call engineer in a real Chromium: on the pages of three real replicas, of which one was killed, and by
// the commands. `make browser` runs it.
package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// step is a click, or the text that is typed into a field.
type step struct{ selector, text string }

func click(selector, text string) step { return step{selector, text} }
func fill(id, text string) step        { return step{"#" + id, text} }

// question is one that an operator asks. Its page is reached from the overview in two clicks at most.
type question struct {
	asked   string
	steps   []step
	shown   []string
	command []string
	printed []string
}

// mostClicks is how many clicks an answer may take.
const mostClicks = 2

func questions(skipped string) []question {
	job := func(name string) step { return click("th a", name) }
	cluster := click("nav a", "Cluster")
	return []question{
		{"What failed last night, and why?", []step{click("nav a", "Timeline"), click("nav a", "24h")},
			[]string{"What went wrong in this window", "import-orders ✗ failed", "exit code 3"}, []string{"history", "--failed", "--since", "12h"}, []string{"import-orders", "exit code 3"}},
		{"Where does JOB run now?", nil, []string{"rebuild-index", "r%s/0 #1"}, []string{"status", "rebuild-index"}, []string{"r%s"}},
		{"What will run in the next hour?", []step{click("nav a", "Timeline"), click("nav a", "6h")},
			[]string{"To come in this window", "nightly-backup in ", "extract in "}, []string{"next", "--until", "1h"}, []string{"nightly-backup", "extract"}},
		{"Is anything late?", []step{click(".facts a", "1 late")}, []string{"1 of 11 jobs", "export-stock", "waits for pool warehouse"},
			[]string{"status"}, []string{"pool warehouse is full: 1 waits"}},
		{"Which replica is different?", []step{cluster}, []string{"differs"}, []string{"status"}, []string{"differ"}},
		{"Which replica is lost?", []step{cluster}, []string{"1 lost", "r%s ✗ lost"}, []string{"status"}, []string{"the registration of replica r%s expired"}},
		{"Why did JOB not run at TIME?", []step{job("nightly-backup"), fill("at", skipped), click("button", "Ask")},
			[]string{"nightly-backup at 2", "skipped", "all slots of the job were held", "held a slot from"}, []string{"why", "nightly-backup", skipped}, []string{"all slots of the job were held", "held a slot from"}},
		{"What does JOB print now?", []step{job("rebuild-index")}, []string{"running on r", "indexed 7 pages"}, []string{"logs", "-f", "rebuild-index"}, []string{"indexed "}},
		{"By which user is JOB paused, and why?", nil, []string{"invoices", "paused by ", ": the bank is closed"}, []string{"status", "invoices"}, []string{"the bank is closed"}},
		{"Which runs wait for the pool?", []step{cluster}, []string{"1 of 1 slot held, 1 waiting", "waits export-stock", "holds slot 0 export-sales"}, []string{"status"}, []string{"export-stock", "export-sales"}},
		{"What did users do lately?", []step{cluster}, []string{"Audit log", "trigger rebuild-index search was empty", "pause invoices the bank is closed"}, []string{"audit"}, []string{"search was empty", "the bank is closed"}},
		{"How long does JOB take lately?", []step{job("nightly-backup")}, []string{"How long runs took", "Median 5."}, []string{"history", "nightly-backup"}, []string{"DURATION", "5."}},
	}
}

// matches returns whether a text has another in it, in which r%s is any replica.
func matches(text, wanted string) bool {
	return regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(wanted), "%s", `\d`)).MatchString(text)
}

func TestDashboard(t *testing.T) {
	c := newCluster(t)
	c.night()
	skipped := skippedTick(t, c)
	browser := newBrowser(t)
	newTab(t, browser, c.urls[c.kept], 1280).logIn()
	for _, width := range []int64{1280, 390} {
		t.Run(fmt.Sprintf("Questions/%d", width), func(t *testing.T) {
			b := newTab(t, browser, c.urls[c.kept], width)
			for _, q := range questions(skipped) {
				b.answers(q)
			}
		})
	}
	t.Run("Commands", func(t *testing.T) { answeredByCommands(t, c, questions(skipped)) })
	t.Run("Documented", func(t *testing.T) { documented(t, questions("TIME")) })
	t.Run("Live", func(t *testing.T) { live(t, newTab(t, browser, c.urls["r3"], 1280), c) })
	t.Run("Ages", func(t *testing.T) { ages(t, newTab(t, browser, c.urls["r3"], 1280)) })
	t.Run("Acts", func(t *testing.T) { acts(t, newTab(t, browser, c.urls[c.kept], 390), false) })
	t.Run("WithoutJavaScript", func(t *testing.T) { acts(t, newTab(t, browser, c.urls["r3"], 390), true) })
	t.Run("Pages", func(t *testing.T) { soundPages(t, browser, c, skipped) })
	t.Run("Pictures", func(t *testing.T) { pictures(newTab(t, browser, c.urls[c.kept], 1200)) })
	t.Run("LogOut", func(t *testing.T) {
		b := newTab(t, browser, c.urls[c.kept], 390)
		b.open("/")
		b.click("button", "Log out")
		b.shows("Token")
		logInAndOut(b)
	})
}

// answers demands that the answer of a question is on the page at the end of its steps.
func (b *tab) answers(q question) {
	b.t.Helper()
	b.open("/")
	b.shows("Log out")
	for _, s := range q.steps {
		if id, field := strings.CutPrefix(s.selector, "#"); field {
			b.fill(id, s.text)
			continue
		}
		b.click(s.selector, s.text)
	}
	b.shows(q.shown...)
	if b.clicks > mostClicks {
		b.t.Errorf("%s %d clicks, at most %d", q.asked, b.clicks, mostClicks)
	}
	b.t.Logf("%s %s, clicks: %d", q.asked, b.path(), b.clicks)
	b.fits()
}

// skippedTick is an instant at which a backup was skipped.
func skippedTick(t *testing.T, c *cluster) string {
	t.Helper()
	var found []struct{ Tick time.Time }
	out := c.run("history", "nightly-backup", "--outcome", "skipped", "--json")
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found) == 0 {
		t.Fatalf("%v %s", err, out)
	}
	return found[0].Tick.UTC().Format(time.RFC3339)
}

// answeredByCommands demands that one command answers each question.
func answeredByCommands(t *testing.T, c *cluster, list []question) {
	for _, q := range list {
		out := c.run(q.command...)
		for _, wanted := range q.printed {
			if !matches(out, wanted) {
				t.Errorf("%s cronclave %s: no %q in %s", q.asked, strings.Join(q.command, " "), wanted, out)
			}
		}
	}
}

// documented demands that the page of the documentation has each question with its command.
func documented(t *testing.T, list []question) {
	page, err := os.ReadFile("../../docs/dashboard.md")
	must(t, err)
	for _, q := range list {
		command := "cronclave " + regexp.MustCompile(`rebuild-index|nightly-backup|invoices`).ReplaceAllString(strings.Join(q.command, " "), "JOB")
		if !regexp.MustCompile(`(?m)^- ` + regexp.QuoteMeta(q.asked) + ` .*` + regexp.QuoteMeta(command)).Match(page) {
			t.Errorf("docs/dashboard.md has no line of %q with %q", q.asked, command)
		}
	}
}

// live demands that a change on the cluster is on an open page within two seconds.
func live(t *testing.T, b *tab, c *cluster) {
	const most = 2 * time.Second
	b.open("/?q=sync")
	b.shows("sync-crm", "Live")
	worst := time.Duration(0)
	for i := range 4 {
		reason := fmt.Sprintf("try %d", i)
		if i%2 == 0 {
			c.run("pause", "sync-crm", "--reason", reason)
		} else {
			c.run("resume", "sync-crm")
		}
		began := time.Now()
		eventually(t, "the change is shown", patience, func() bool {
			return strings.Contains(b.text(), reason) == (i%2 == 0) && strings.Contains(b.text(), "paused by") == (i%2 == 0)
		})
		worst = max(worst, time.Since(began))
	}
	t.Logf("the slowest of four changes was shown after %v", worst.Round(time.Millisecond))
	if worst > most {
		t.Errorf("a change was shown after %v, want %v at most", worst, most)
	}
}

// ages demands that a page which has not changed for a while, after which Redis is away, shows for how long that has been so.
func ages(t *testing.T, b *tab) {
	b.open("/?q=invoices")
	b.shows("invoices", "Live")
	_, err := ask[bool](b, `(() => {
		window.began = Date.now();
		window.fetch = async () => Date.now() - began < 6000 ? new Response(null, { status: 304 })
			: new Response('<main id="main"><div class="away" id="probe">Away for <time datetime="' + new Date(began).toISOString() + '" data-lasting=""></time></div></main>', { status: 503 });
		return true;
	})()`)
	must(t, err)
	var seconds []float64 // that have passed, and that are shown
	eventually(t, "the notice is shown", patience, func() bool {
		seconds, err = ask[[]float64](b, `document.querySelector("#probe time") ? [(Date.now() - began) / 1000, parseInt(document.querySelector("#probe time").textContent)] : []`)
		return err == nil && len(seconds) == 2
	})
	if late := seconds[0] - seconds[1]; late < -1 || late > 3 {
		t.Errorf("after %.1f s the page shows %.0f s", seconds[0], seconds[1])
	}
}

// acts pauses a job with a reason, looks at that in the audit log, and resumes it; with JavaScript or without.
func acts(t *testing.T, b *tab, off bool) {
	b.scripts(off)
	reason := fmt.Sprintf("disks are full, %v", off)
	b.open("/jobs/extract")
	b.shows("Coming ticks", map[bool]string{true: "Times in UTC", false: "Live"}[off])
	b.click("summary", "Pause…")
	b.fill("for", "2h")
	b.fill("reason-pause", reason)
	b.click("button", "Pause")
	b.shows("Paused: ticks are skipped", "by ann: "+reason)
	b.open("/")
	b.shows("by ann: " + reason)
	b.click("nav a", "Cluster")
	b.shows("ann pause", reason)
	b.open("/resume?q=extract")
	b.shows("Resume 1 job?")
	b.fill("reason", "they are not")
	b.click("button", "Resume 1")
	b.shows("Resumed: the job runs from its next tick on.")
	b.open("/")
	b.fill("q", "backup")
	b.click("button", "Show")
	b.shows("1 of 11 jobs", "nightly-backup")
	if strings.Contains(b.text(), "sync-crm") {
		t.Error("the filter leaves sync-crm in the list")
	}
	b.fill("goto", "rebuild\r")
	b.shows("Job rebuild-index")
	b.click("nav a", "Cluster")
	b.shows("they are not")
}

// pictures are some of the documentation, and the page of the cluster.
func pictures(b *tab) {
	b.open("/")
	b.shoot("dashboard-overview", 1200, 1000, false)
	b.open("/jobs/nightly-backup")
	b.shoot("dashboard-job", 1200, 1000, false)
	b.open("/?outcome=failing")
	b.shoot("dashboard-phone", 390, 844, true)
	b.open("/cluster")
	b.shoot("cluster-phone", 390, 1700, true)
}

// logInAndOut begins and ends a session by the forms, with JavaScript and without.
func logInAndOut(b *tab) {
	for _, off := range []bool{false, true} {
		b.scripts(off)
		b.logIn()
		b.click("nav a", "Cluster")
		b.click("button", "Log out")
		b.shows("Token", "Log in")
		b.open("/cluster")
		b.shows("Token", "Log in")
	}
}
