package main

import (
	"bytes"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/redisconn"
)

// TestDoctorExitCodes: usage errors name the flag, a silent server is 69, and a trial is 1, in JSON of which no list is null.
func TestDoctorExitCodes(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	trial := startRedis(t).URL()
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"doctor", 2, "no Redis named"},
		{"doctor redis://:x@127.0.0.1/0", 2, "has a password, which everybody sees"},
		{"doctor ftp://127.0.0.1", 2, "must begin with redis://"},
		{"doctor redis://127.0.0.1 --redis redis://127.0.0.1", 2, "name the same"},
		{"doctor -o narrow redis://127.0.0.1", 2, "it must be wide"},
		{"doctor redis://" + silent.Addr().String(), 69, "no answer within"},
		{"doctor " + trial, 1, "P1 Once         no     embedded"},
		{"doctor --json " + trial, 1, `"verdict": "fault"`},
	} {
		var out, said bytes.Buffer
		code := runCommandLine(t.Context(), strings.Fields(tc.args), streams{out: &out, err: &said})
		if code != tc.code || !strings.Contains(out.String()+said.String(), tc.says) || strings.Contains(out.String(), "null") {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s%s", tc.args, code, tc.code, tc.says, &out, &said)
		}
		if strings.Contains(tc.args, "--json") {
			var d redisconn.Diagnosis
			if err := json.Unmarshal(out.Bytes(), &d); err != nil || len(d.Promises) != 9 || len(d.Servers) != 1 {
				t.Errorf("%v: %s", err, &out)
			}
		}
	}
}
