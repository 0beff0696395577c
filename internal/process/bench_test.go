//go:build linux

package process

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/warden"
)

// BenchmarkRun runs /bin/true in each mode, without and with a warden, beside a bare exec.Cmd whose output is captured.
func BenchmarkRun(b *testing.B) {
	b.Run("exec.Cmd", func(b *testing.B) {
		for b.Loop() {
			var out bytes.Buffer
			cmd := exec.Command("/bin/true")
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	umask := uint32(0o27)
	spec := Spec{Name: "bench", Argv: []string{"/bin/true"}, Env: []string{"PATH=/bin", proc.RunID + "=bench"}, Keep: 16 << 10}
	masked := spec
	masked.Umask = &umask
	for _, mode := range []struct {
		name    string
		cgroups bool
		warden  bool
		spec    Spec
	}{{"cgroup", true, false, spec}, {"group", false, false, spec}, {"group, umask", false, false, masked},
		{"cgroup, warden", true, true, spec}, {"group, warden", false, true, spec}} {
		b.Run(mode.name, func(b *testing.B) {
			h := newTestHost(b, mode.cgroups)
			if mode.warden {
				w, err := warden.Start(warden.Config{})
				if err != nil {
					b.Fatal(err)
				}
				defer w.Close()
				h.warden = watchman{w, false}
			}
			for b.Loop() {
				if e := h.Run(b.Context(), b.Context(), mode.spec); e.Code != 0 {
					b.Fatalf("%+v", e)
				}
			}
		})
	}
}
