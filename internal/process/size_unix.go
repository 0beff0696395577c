//go:build linux || darwin

package process

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrTooLong reports that a command and its environment are too long for the kernel.
var ErrTooLong = errors.New("too long for the kernel")

// longestString is the maximum length of an argument, or of NAME=value: MAX_ARG_STRLEN of Linux, without the final NUL.
const longestString = 128<<10 - 1

// CheckSize returns an error that wraps [ErrTooLong] if the kernel can't pass the arguments and the environment to a program. It names variables, but
// no value.
func CheckSize(argv, env []string) error {
	for i, arg := range argv {
		if len(arg) > longestString {
			return fmt.Errorf("%w: argument %d has %d bytes, at most %d are possible: put it into a file, and name that", ErrTooLong, i, len(arg), longestString)
		}
	}
	for _, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); len(entry) > longestString {
			return fmt.Errorf("%w: the variable %.100s has %d bytes with its name, at most %d are possible", ErrTooLong, name, len(entry), longestString)
		}
	}
	arguments, variables, most := sizeOf(argv), sizeOf(env), mostArguments()
	if len(argv) > 0 {
		arguments += len(argv[0]) + 1 // the kernel also passes the file name
	}
	if arguments+variables > most {
		return fmt.Errorf("%w: the arguments take %d bytes and the environment %d, together at most %d are possible (a quarter of ulimit -s, 6 MiB at most); "+
			"set inherit_env = false, or use files", ErrTooLong, arguments, variables, most)
	}
	return nil
}

// sizeOf returns the bytes that strings take in a new program, each with its NUL and a pointer.
func sizeOf(list []string) (n int) {
	const pointer = 8
	for _, s := range list {
		n += len(s) + 1 + pointer
	}
	return n
}

// mostArguments returns the maximum total size of arguments and environment in bytes. The rule is bprm_stack_limits in the kernel's fs/exec.c, since Linux
// 4.13.
func mostArguments() int {
	const least, most = 128 << 10, 6 << 20
	var stack unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &stack); err != nil {
		return most
	}
	return int(max(min(stack.Cur/4, most), least))
}
