package journal

import (
	"encoding/json"
	"errors"
	"testing"
)

// FuzzDecode gives the decoders what somebody else may have put in Redis: they
// give a good value or ErrCorrupt, and a good record can be written again.
func FuzzDecode(f *testing.F) {
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","tick":"2026-03-01T03:00:00Z","slot":0,"exit_code":3,"newer":{"x":[1]}}`)
	f.Add(`{"id":"1","name":"n","seen":"2026-03-01T03:00:00Z"}`)
	f.Add(`{"name":"a","schedule":["* * * * *"],"parallel":-1}`)
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","tick":"9999-12-31T23:59:59.999999999+23:59"}`)
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","tick":"9999-12-31T23:59:59-23:59"}`)
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","slot":-1,"attempt":-1,"duration_ms":9223372036854775807}`)
	f.Add(`{"id":"1","name":"n","running":-9}`)
	f.Add(`{"id":"1","name":"n","running":3,"max_running":8,"lease_margin":{"left_ms":31000,"lease_ms":30000}}`)
	f.Add(`{"run_id":"1","job":"a","outcome":"ok","token":1e400}`)
	f.Add(`{"jobs":1,"settings":[{"key":"a","value":"b"},{"key":"a"}]}`)
	f.Add(`{"a":"c","b":""}`)
	for _, s := range []string{"", "null", "[]", "{", "\xff", `""`, "7", `{"run_id":{}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := decodeRecord("a", "1", text)
		if err == nil {
			if r.Job != "a" || r.RunID != "1" || r.Outcome == "" {
				t.Fatalf("accepted %+v", r)
			}
			if b, err := json.Marshal(r); err != nil {
				t.Fatalf("accepted what can't be shown: %v", err)
			} else if _, err := decodeRecord("a", "1", string(b)); err != nil {
				t.Fatalf("shown as %s, which is refused: %v", b, err)
			}
			r.score()
		} else if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("error without ErrCorrupt: %v", err)
		}
		var replica Replica
		if err := decodeEntry(text, &replica, &replica.ID, "1"); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		for _, fields := range [][2]string{{text, `{}`}, {`{"jobs":1,"settings":[{"key":"a","value":"b"}]}`, text}} {
			s, err := decodeSettings(fields[0], fields[1])
			if err != nil && !errors.Is(err, ErrCorrupt) || err == nil && faultOf(s) != "" {
				t.Fatalf("%+v, %v", s, err)
			}
		}
		var info JobInfo
		if err := decodeEntry(text, &info, &info.Name, "a"); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// FuzzOutput splits any output into blocks and joins them again.
func FuzzOutput(f *testing.F) {
	f.Add("some output|with bars", int64(700), 3)
	f.Fuzz(func(t *testing.T, output string, maxBytes int64, runs int) {
		if maxBytes < 1 || maxBytes > 1<<24 || runs < 1 || runs > 1<<20 {
			t.Skip()
		}
		b := blocksOf(maxBytes, runs)
		if room := int64(b.size) * int64(b.count); b.size < 1 || b.count < 1 || room > maxBytes {
			t.Fatalf("%d blocks of %d bytes for %d", b.count, b.size, maxBytes)
		}
		members := b.splitOutput("p|id|", output)
		if len(members) > b.count {
			t.Fatalf("%d blocks, %d at most", len(members), b.count)
		}
		got := joinBlocks("p|id|", members)
		if got == nil || len(*got) > len(output) || *got != output[len(output)-len(*got):] {
			t.Fatalf("%q became %v", output, got)
		}
		if len(*got) < len(output) && len(*got) < b.size*b.count {
			t.Fatalf("cut to %d bytes", len(*got))
		}
	})
}
