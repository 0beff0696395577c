package journal

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestLeaseMargins: a margin is low by its part of the lease, whatever the length of that.
func TestLeaseMargins(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		margin LeaseMargin
		text   string
		low    bool
	}{
		{LeaseMargin{"", 19_700, 30_000}, "19.7s of 30s", false},
		{LeaseMargin{"", 15_000, 30_000}, "15.0s of 30s", false},
		{LeaseMargin{"", 14_999, 30_000}, "15.0s of 30s", true},
		{LeaseMargin{"", 0, 1500}, "0.0s of 1.5s", true},
		{LeaseMargin{"", 86_400_000, 86_400_000}, "86400.0s of 86400s", false},
	} {
		if tc.margin.String() != tc.text || tc.margin.Low() != tc.low {
			t.Errorf("%v is low: %v; want %s, %v", tc.margin, tc.margin.Low(), tc.text, tc.low)
		}
	}
	if short, long := (LeaseMargin{"", 700, 1000}), (LeaseMargin{"", 15_000, 30_000}); short.Below(long) || !long.Below(short) || long.Below(long) {
		t.Error("a short lease with a greater part left is closer to its end")
	}
}

// TestImpossibleLoadIsDamage: values that no replica has written are reported as such, and not shown.
func TestImpossibleLoadIsDamage(t *testing.T) {
	t.Parallel()
	for text, damaged := range map[string]bool{
		`"running":3`: false,
		`"running":3,"max_running":8,"lease_margin":{"left_ms":20000,"lease_ms":30000}`: false,
		`"running":3,"max_running":-1`:                                                      true,
		`"running":3,"max_running":1000001`:                                                 true,
		`"lease_margin":{"left_ms":-1,"lease_ms":30000}`:                                    true,
		`"lease_margin":{"left_ms":30001,"lease_ms":30000}`:                                 true,
		`"lease_margin":{"left_ms":0,"lease_ms":0}`:                                         true,
		`"lease_margin":{"of":"job a","left_ms":0,"lease_ms":9}`:                            false,
		`"lease_margin":{"of":"` + strings.Repeat("x", 301) + `","left_ms":0,"lease_ms":9}`: true,
		`"lease_margin":{"left_ms":0,"lease_ms":864000000000}`:                              true,
	} {
		var r Replica
		if err := decodeEntry(`{"id":"a",`+text+`}`, &r, &r.ID, "a"); errors.Is(err, ErrCorrupt) != damaged {
			t.Errorf("%s: %v", text, err)
		}
	}
	old, err := json.Marshal(Replica{ID: "a", Seen: time.Unix(0, 0)})
	var r Replica
	if err != nil || decodeEntry(string(old), &r, &r.ID, "a") != nil || r.LeaseMargin != nil || r.MaxRunning != 0 {
		t.Errorf("%s: %+v, %v", old, r, err)
	}
}
