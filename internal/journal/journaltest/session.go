package journaltest

import (
	"errors"
	"strings"
	"sync"

	"github.com/cronclave/cronclave/internal/journal"
)

// sessionSecrets are one for all replicas, survive a loss of data by the replicas that know them, and are in no error.
func sessionSecrets(s *suite) {
	j, other := s.journal(journal.Config{}), s.journal(journal.Config{})
	key := "cronclave:" + s.namespace + ":session-secret"
	read := func(j *journal.Journal, known string) string {
		s.Helper()
		secret, err := j.SessionSecret(s.ctx, known)
		must(s, err)
		return secret
	}
	var found [4]string
	var together sync.WaitGroup
	for i := range found {
		together.Go(func() { found[i], _ = j.SessionSecret(s.ctx, "") })
	}
	together.Wait()
	first := found[0]
	if len(first) != 64 || found != [4]string{first, first, first, first} {
		s.Errorf("secrets %q", found)
	}
	if read(other, "") != first || read(other, strings.Repeat("0", 64)) != first {
		s.Error("another replica has another secret")
	}
	if ttl, err := s.client.PTTL(s.ctx, key).Result(); err != nil || ttl >= 0 || !journal.IsSecretKey(key) {
		s.Errorf("%s ends in %v: %v", key, ttl, err)
	}
	s.client.Del(s.ctx, key)
	if read(other, first) != first || read(j, "") != first {
		s.Error("the secret is not restored")
	}
	s.client.Del(s.ctx, key)
	if read(j, "") == first {
		s.Error("the secret is not random")
	}
	for _, damaged := range []string{"", first[1:], first + "0", strings.Repeat("x", 64)} {
		s.client.Set(s.ctx, key, damaged, 0)
		if got, err := j.SessionSecret(s.ctx, first); got != "" || !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), first[2:]) {
			s.Errorf("%q is taken for a secret: %q, %v", damaged, got, err)
		}
	}
	s.client.Del(s.ctx, key)
	s.client.HSet(s.ctx, key, "a", "b")
	if _, err := j.SessionSecret(s.ctx, first); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), key) {
		s.Errorf("a hash: %v", err)
	}
}
