package importer

import (
	"strings"
	"testing"
)

// TestSecretsAreMasked has the forms of secrets, each with "s3" in the part that must not be printed, and then forms that are none.
func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"mysql -ps3a x; mysqldump -ps3b", "curl -u a:s3 x; curl -u b:s3 y", "curl -u 'a:$s3' x", "mysql -p'$s3cret'", "redis-cli -h x -a s3 ping", "redis-cli --pass 's3'",
		"PASSWORD=s3x TOKEN=s3y a", "curl https://hooks.slack.com/services/s3/s3", "https://discord.com/api/webhooks/s3/s3", "https://api.telegram.org/bots3:s3/sendMessage",
		"x --password s3", "https://u:s3@h/ https://v:s3@h/", "-H 'Authorization: Bearer s3abcd'", "-H Authorization:s3abcd -v", "sshpass -p s3 ssh h", "API_KEY='$s3x y' a",
	} {
		if masked := maskSecrets(text); strings.Contains(masked, "s3") || !hasSecret(text) {
			t.Errorf("%q becomes %q", text, masked)
		}
	}
	for _, text := range []string{
		`curl -H "Authorization: Bearer $TOKEN"`, `mysql -p"$PW"`, "curl https://api.telegram.org/bot$TOKEN/x", "mkdir -p x", "redis-cli -n 1 keys", "curl -u $USER:$PW x", "PASSWORD=$X a",
	} {
		if hasSecret(text) {
			t.Errorf("%q becomes %q", text, maskSecrets(text))
		}
	}
}
