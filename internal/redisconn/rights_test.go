package redisconn

import (
	"os"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
)

// The printed rights are those of the documentation.
func TestRightsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		Rights{"cron", "default", config.Single}.All(), Rights{"viewer", "default", config.Single}.ReadOnly(), "`" + clusterCommands + "`",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/access.md lacks %s", want)
		}
	}
	if got := (Rights{"default", "a", config.Cluster}).All(); !strings.HasPrefix(got, "ACL SETUSER default ~cronclave:a:* &cronclave:a:* +ping ") || !strings.HasSuffix(got, clusterCommands) {
		t.Errorf("of a Cluster: %s", got)
	}
}
