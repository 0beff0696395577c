package main

import (
	"os"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
)

// TestRightsAreDocumented compares what is printed to what the documentation has.
func TestRightsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		rights{"cron", "default", config.Single}.all(), rights{"viewer", "default", config.Single}.looking(), "`" + clusterCommands + "`",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/access.md lacks %s", want)
		}
	}
	if got := (rights{"", "a", config.Cluster}).all(); !strings.HasPrefix(got, "ACL SETUSER default ~cronclave:a:* &cronclave:a:* +ping ") || !strings.HasSuffix(got, clusterCommands) {
		t.Errorf("of a Cluster: %s", got)
	}
}
