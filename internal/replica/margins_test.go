package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/internal/web"
	"github.com/cronclave/cronclave/locking"
)

// TestRenewalsAndLossesAreNoted, whether or not the replica has metrics.
func TestRenewalsAndLossesAreNoted(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*monitor{"without [server]": {}, "with [server]": {metrics: web.NewMetrics("v1", nil, web.Gauges{})}} {
		var noted margins
		m.leaseHooks(&noted).Renewed("{leader}:office", 10*time.Second, 30*time.Second)
		if least := noted.leastMargin(); least == nil || least.String() != "10.0s of 30s" || least.Of != "the leadership" {
			t.Errorf("%s: %v", name, least)
		}
		m.leaseHooks(&noted).Renewed("{a}:job", time.Nanosecond, 30*time.Second)
		if least := noted.leastMargin(); least == nil || least.Lost() || least.Of != "job a" {
			t.Errorf("%s, nearly lost: %v", name, least)
		}
		m.leaseHooks(&noted).Lost("{db}:pool", 30*time.Second, locking.ErrLost)
		if least := noted.leastMargin(); least == nil || !least.Lost() || !least.Low() || least.LeaseMS != 30_000 || least.Of != "pool db" {
			t.Errorf("%s, lost: %v", name, least)
		}
	}
}

// A margin names its holder. The lock of a trigger request ends with the start of its run, and is no holder that people know: the leadership least of all.
func TestMarginsNameTheirHolder(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string]string{
		"{a}:job": "job a", "{db}:pool": "pool db", "{leader}:office": "the leadership", "{a}:request:request-x": "", "other": "",
	} {
		for what, note := range map[string]func(*margins){
			"renewed": func(m *margins) { m.noteRenewed(lock, 10*time.Second, 30*time.Second) },
			"lost":    func(m *margins) { m.noteLost(lock, 30*time.Second, locking.ErrLost) },
		} {
			var m margins
			note(&m)
			got := ""
			if least := m.leastMargin(); least != nil {
				got = least.Of
			}
			if got != want {
				t.Errorf("%s %s: the margin is that of %q, want %q", lock, what, got, want)
			}
		}
	}
}

// TestLeastMarginOfTheLastMinute: the margin that counts is the smallest part of a lease, whatever its length, and it is forgotten after a minute.
func TestLeastMarginOfTheLastMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m margins
		wants := func(when, want string) {
			t.Helper()
			got := ""
			if least := m.leastMargin(); least != nil {
				got = least.String()
			}
			if got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		wants("without a renewal", "")
		m.noteRenewed("{a}:job", 19700*time.Millisecond, 30*time.Second)
		wants("after one", "19.7s of 30s")
		m.noteRenewed("{a}:job", 1900*time.Millisecond, 3*time.Second)
		wants("after one with a smaller part left", "1.9s of 3s")
		m.noteRenewed("{a}:job", 700*time.Millisecond, time.Second)
		wants("after one with less time and a greater part left", "1.9s of 3s")
		time.Sleep(30 * time.Second)
		m.noteRenewed("{a}:job", 29*time.Second, 90*time.Second)
		m.noteRenewed("{a}:job", 60*time.Second, 90*time.Second)
		wants("after half a minute, with a slow one", "29.0s of 90s")
		time.Sleep(55 * time.Second)
		wants("55s later", "29.0s of 90s")
		time.Sleep(5 * time.Second)
		wants("a minute later", "")
		m.noteRenewed("{a}:job", 20*time.Second, 30*time.Second)
		wants("after one in the place of an old one", "20.0s of 30s")
		if least := m.leastMargin(); least.Low() {
			t.Error("two thirds are not low")
		}
	})
}
