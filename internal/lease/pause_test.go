package lease

import "testing"

// TestPauseRecordsAreRead reads pauses back, also those of older clients, which have no user.
func TestPauseRecordsAreRead(t *testing.T) {
	for _, p := range []PauseRecord{
		{Changed: 5, From: 3, Until: 9, Outcome: "skipped paused", Reason: "disks, & more; 100%", By: "ann&bob@host"},
		{Changed: 5, From: 3, Outcome: "skipped", By: "ann"},
		{Changed: 5, From: 3, Outcome: "skipped", Reason: "new disks"},
		{Changed: 5, From: 3, Until: 4},
	} {
		if got := ReadPause(p.Text()); got != p {
			t.Errorf("%q is read as %+v, want %+v", p.Text(), got, p)
		}
	}
	if got := ReadPause("5,3,0,skipped,new+disks"); got.Reason != "new disks" || got.By != "" {
		t.Errorf("of an older client: %+v", got)
	}
	if p := (PauseRecord{Changed: 5, From: 3, Outcome: "skipped", Reason: "x", By: "ann"}).Next(PauseRequest{End: true}, 7); p.By != "" || p.Reason != "" {
		t.Errorf("a pause that was ended still has its reason: %+v", p)
	}
}
