package redisconn

import (
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

// TestEveryRightIsProbed: a command that the rules permit and that no probe sends would be missed by doctor.
func TestEveryRightIsProbed(t *testing.T) {
	t.Parallel()
	args := rightArgs("k", 0)
	for _, name := range (Rights{Topology: config.Cluster}).commands() {
		if _, probed := args[name]; !probed && !strings.HasSuffix(name, "subscribe") {
			t.Errorf("no probe sends %s", name)
		}
		delete(args, name)
	}
	if len(args) > 0 {
		t.Errorf("no rule permits %v", args)
	}
}

// TestEveryWarningHasALevel, which decides about the exit code of doctor.
func TestEveryWarningHasALevel(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("health.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`addWarning\("(\w+)"`).FindAllStringSubmatch(string(text), -1)
	if len(found) < 6 {
		t.Fatalf("warnings %q", found)
	}
	for _, m := range found {
		if _, known := warningLevels[m[1]]; !known && m[1] != "quorum" { // which doctor finds itself
			t.Errorf("%s has no level", m[1])
		}
	}
}

// TestPromisesAreThose of docs/guarantees.md.
func TestPromisesAreThose(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^- P\d \*\*(.*?)\.\*\*`).FindAllStringSubmatch(string(page), -1) {
		names = append(names, m[1])
	}
	if !slices.Equal(names, promiseNames) {
		t.Errorf("%q, want %q", promiseNames, names)
	}
}

// TestSilentServerIsUnreachable: a server that accepts connections and never answers is reported. TestDoctorEndsInTime has the bound.
func TestSilentServerIsUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, url := range []string{"redis://" + l.Addr().String(), "redis-cluster://" + l.Addr().String(), "redis-sentinel://" + l.Addr().String() + "/prime"} {
		c, err := openURL(url)
		if err != nil {
			t.Fatal(err)
		}
		d := c.Diagnose(t.Context(), "default")
		_ = c.Close()
		if d.Verdict != VerdictUnreachable || len(d.Findings) == 0 || !strings.Contains(d.Findings[0].Message, "no answer within 1.4s") {
			t.Errorf("%s: %+v", url, d)
		}
	}
}

// TestEmbeddedIsATrial, so that no promise that needs other machines holds on it.
func TestEmbeddedIsATrial(t *testing.T) {
	t.Parallel()
	c, err := openURL(embeddedServer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	d := c.Diagnose(t.Context(), "default")
	if d.Verdict != VerdictFault || d.Kind != KindEmbedded || d.Promises[0].Holds != HoldsNo || d.Promises[6].Holds != HoldsYes {
		t.Errorf("%+v", d)
	}
}

// TestMedianClockOfAQuorumCounts: a minority may have any clock.
func TestMedianClockOfAQuorumCounts(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour / time.Millisecond)
	for _, tc := range []struct {
		kind    Kind
		offsets []int64
		want    Level // of the finding; "" for none
	}{
		{KindQuorum, []int64{0, hour, 1}, ""}, {KindQuorum, []int64{hour, 0, hour}, LevelFault}, {KindQuorum, []int64{-2000, -3000, 0}, LevelWarning},
		{KindCluster, []int64{0, hour, 1}, LevelFault}, {KindSingle, []int64{400}, ""}, {KindSingle, nil, ""},
	} {
		d := Diagnosis{Kind: tc.kind}
		var results []examination
		for _, offset := range tc.offsets {
			results = append(results, examination{clock: &ClockOffset{MS: offset}})
		}
		d.judgeClocks(results)
		var got Level
		if len(d.Findings) > 0 {
			got = d.Findings[0].Level
		}
		if got != tc.want {
			t.Errorf("%s with %v: %q, want %q", tc.kind, tc.offsets, got, tc.want)
		}
	}
}

// TestPromisesFollowTheWorstFinding.
func TestPromisesFollowTheWorstFinding(t *testing.T) {
	t.Parallel()
	for level, want := range map[Level]Holds{LevelLimit: HoldsYes, LevelWarning: HoldsYes, LevelUnknown: HoldsUnknown, LevelFault: HoldsNo} {
		d := Diagnosis{Verdict: VerdictHolds, Findings: []Finding{{Code: "a", Level: level, Promises: []string{"P2"}}, {Code: "b", Level: LevelLimit, Promises: []string{"P2", "P3"}}}}
		d.judgePromises()
		if p := d.Promises[1]; p.Holds != want || !slices.Equal(p.Codes, []string{"a", "b"}) || d.Promises[2].Holds != HoldsYes || (d.Verdict == VerdictHolds) != (want == HoldsYes) {
			t.Errorf("%s: %+v, %s", level, d.Promises, d.Verdict)
		}
	}
}
