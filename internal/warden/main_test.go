package warden

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test binary the helper, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Subcommand {
		if err := Main(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
