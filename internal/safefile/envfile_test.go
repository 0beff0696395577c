package safefile

import (
	"fmt"
	"strings"
	"testing"
)

// A comment after a value without quotes is a part of the value here, and none for docker, systemd and most dotenv libraries.
func TestInlineCommentsAreWarnings(t *testing.T) {
	t.Parallel()
	vars, warnings, err := ParseEnv("f", "A=1 # one\r\nB='2' # two\nC=x#y\nD=\"a # b\"\nE= # none\n# F=1 # 2\nG=a\t#b\r\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"A": "1 # one", "B": "2", "C": "x#y", "D": "a # b", "E": "# none", "G": "a\t#b"} {
		if vars[name] != want {
			t.Errorf("%s is %q, want %q", name, vars[name], want)
		}
	}
	var lines []string
	for _, w := range warnings {
		lines = append(lines, fmt.Sprint(w.Line))
	}
	if got := strings.Join(lines, " "); got != "1 5 7" {
		t.Errorf("warnings for lines %s: %v", got, warnings)
	}
}

func TestValueInSeveralLinesIsAFault(t *testing.T) {
	t.Parallel()
	_, _, err := ParseEnv("f", "KEY=\"-----BEGIN\nsecret\n-----END\"\n")
	if err == nil || strings.Contains(err.Error(), "secret") ||
		!strings.HasPrefix(err.Error(), `f:1: KEY: the closing " is missing in this line; a value cannot go on in the next one, \n in double quotes is a line end`) {
		t.Errorf("%v", err)
	}
}

func TestInterpreterFault(t *testing.T) {
	t.Parallel()
	for start, faulty := range map[string]bool{
		"#!/bin/sh\r\necho\r\n": true, "#!/usr/bin/env bash\r\n": true, "#!/bin/sh\necho\r\n": false, "#!/bin/sh\r": false, "echo\r\n": false, "\x7fELF\r\n": false, "": false,
	} {
		if got := InterpreterFault([]byte(start)); got != "" != faulty {
			t.Errorf("%q: %q", start, got)
		}
	}
}
