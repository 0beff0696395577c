//go:build linux

package process

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestCheckSizeIsTheKernels compares the answer with what the kernel does, right below its limits and above.
func TestCheckSizeIsTheKernels(t *testing.T) {
	fill := func(bytes int) (env []string) { // takes that many bytes, with NULs and pointers
		const each, overhead = 64 << 10, 9
		for i := 0; bytes > 0; i++ {
			n := min(bytes, each)
			if rest := bytes - n; rest > 0 && rest < 100 {
				n -= 100
			}
			bytes -= n
			name := fmt.Sprintf("V%03d=", i)
			env = append(env, name+strings.Repeat("x", n-overhead-len(name)))
		}
		return env
	}
	program := []string{"/bin/true"}
	own := sizeOf(program) + len(program[0]) + 1
	for name, tt := range map[string]struct {
		argv, env []string
		tooLong   bool
	}{
		"longest argument":             {argv: append(program, strings.Repeat("x", 128<<10-1))},
		"an argument of 128 KiB":       {argv: append(program, strings.Repeat("x", 128<<10)), tooLong: true},
		"longest variable":             {argv: program, env: []string{"A=" + strings.Repeat("x", 128<<10-3)}},
		"a variable of 128 KiB":        {argv: program, env: []string{"A=" + strings.Repeat("x", 128<<10-2)}, tooLong: true},
		"all that fits":                {argv: program, env: fill(mostArguments() - own)},
		"a byte more than what fits":   {argv: program, env: fill(mostArguments() - own + 1), tooLong: true},
		"nothing but the program":      {argv: program},
		"a hundred thousand variables": {argv: program, env: strings.Split(strings.Repeat("A=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx,", 100_000)+"B=", ","), tooLong: true},
	} {
		err := CheckSize(tt.argv, tt.env)
		if errors.Is(err, ErrTooLong) != tt.tooLong {
			t.Errorf("%s: %v, want an error: %v", name, err, tt.tooLong)
		}
		pid, err := syscall.ForkExec(tt.argv[0], tt.argv, &syscall.ProcAttr{Env: tt.env})
		if errors.Is(err, syscall.E2BIG) != tt.tooLong {
			t.Errorf("%s: the kernel says %v, want an error: %v", name, err, tt.tooLong)
		}
		if err == nil {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
}
