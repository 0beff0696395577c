package warden

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var anyMessage = rapid.Custom(func(t *rapid.T) message {
	return message{
		Verb: verb(rapid.StringMatching(`[a-z]+`).Draw(t, "verb")), Seq: rapid.Uint64().Draw(t, "seq"), Run: rapid.Uint64().Draw(t, "run"),
		Name: rapid.String().Draw(t, "name"), ID: rapid.String().Draw(t, "id"), Cgroup: rapid.String().Draw(t, "cgroup"),
		PID: rapid.Int().Draw(t, "pid"), Start: rapid.Uint64().Draw(t, "start"),
		Deadline: time.Duration(rapid.Int64().Draw(t, "deadline")), Told: rapid.Bool().Draw(t, "told"),
	}
})

// However a pipe cuts them, messages arrive as they were sent.
func TestMessagesSurviveAnyCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOfN(anyMessage, 1, 10).Draw(t, "messages")
		var text []byte
		for _, m := range sent {
			text = append(text, m.encodeLine()...)
		}
		var got []message
		var l lines
		for len(text) > 0 {
			n := rapid.IntRange(1, len(text)).Draw(t, "piece")
			all, err := l.add(slices.Clone(text[:n]))
			if err != nil {
				t.Fatal(err)
			}
			got, text = append(got, all...), text[n:]
		}
		if !reflect.DeepEqual(got, sent) {
			t.Fatalf("got  %+v\nsent %+v", got, sent)
		}
	})
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	for _, text := range []string{"\n", "hello\n", "{\"verb\":1}\n", "[]\n", strings.Repeat("x", longestLine+1)} {
		var l lines
		if all, err := l.add([]byte(text)); err == nil || len(all) > 0 {
			t.Errorf("%.20q: %v, %v", text, all, err)
		}
	}
}

// The longest message goes over a pipe in one piece, so that none is torn where a write must not block.
func TestAnswersAreShort(t *testing.T) {
	const pipeBuf = 512 // POSIX allows no less
	for _, m := range []message{{Verb: ack, Seq: 1<<64 - 1}, {Verb: killed, Run: 1<<64 - 1, Name: strings.Repeat("n", 128)}} {
		if n := len(m.encodeLine()); n > pipeBuf {
			t.Errorf("%+v takes %d bytes", m, n)
		}
	}
}
