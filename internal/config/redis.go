package config

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

const (
	// mostAcked is the maximum of acked_replicas.
	mostAcked = 100
	// The bounds of ack_timeout. It is spent within the time limit of one round trip.
	leastAckTimeout, mostAckTimeout = time.Millisecond, 500 * time.Millisecond
)

func redisKeys() schema.Section[Redis] {
	return schema.Section[Redis]{
		Once: true,
		Keys: []schema.Key[Redis]{
			schema.Field("url", "Redis URL", func(to *Redis) *string { return &to.URL }, func(r *schema.Reader, v document.Value) (string, bool) {
				return redisURL(r, v, "url", func(RedisURL) error { return nil })
			}, "Where Redis is: see [Redis URLs](#redis-urls). `--redis` and `CRONCLAVE_REDIS` go before it."),
			schema.Field("quorum", "list of Redis URLs", func(to *Redis) *[]string { return &to.Quorum }, readQuorum,
				"Independent masters that hold locks and ticks. `url` is required beside it, and keeps the history.").
				Allow("an odd number, 3 at least, each of one server"),
			schema.Path("password_file", func(to *Redis) *string { return &to.PasswordFile }, "A file with the password. Not beside a password in `url`."),
			schema.Table("tls", func(to *Redis) *TLS { to.TLS = &TLS{}; return to.TLS }, tlsKeys(), "Certificates for TLS. With Sentinel or Cluster the table also turns TLS on; for one server write `rediss://`. See [`[redis].tls`](#redistls)."),
			schema.Table("sentinel", func(to *Redis) *SentinelAccess { to.Sentinel = &SentinelAccess{}; return to.Sentinel }, sentinelKeys(), "The password and the certificates of the Sentinels, if they have their own. See [`[redis].sentinel`](#redissentinel)."),
			schema.Integer("acked_replicas", 0, mostAcked, func(to *Redis) *int { return &to.AckedReplicas },
				"How many replicas of Redis must have a grant or a renewal before it counts. Not with `quorum`."),
			schema.Duration("ack_timeout", leastAckTimeout, mostAckTimeout, func(to *Redis) *time.Duration { return &to.AckTimeout }, "How long these replicas have for it."),
		},
	}
}

func sentinelKeys() schema.Section[SentinelAccess] {
	return schema.Section[SentinelAccess]{
		Once: true,
		Keys: []schema.Key[SentinelAccess]{
			schema.String("user", func(to *SentinelAccess) *string { return &to.User }, "The ACL user; together with `password_file`.").By("default"),
			schema.Path("password_file", func(to *SentinelAccess) *string { return &to.PasswordFile }, "A file with the password of all Sentinels (`requirepass`, or that of the user)."),
			schema.Table("tls", func(to *SentinelAccess) *TLS { to.TLS = &TLS{}; return to.TLS }, tlsKeys(), "Certificates as in [`[redis].tls`](#redistls), for the Sentinels alone. The table turns TLS on for them.").By("as for their master"),
		},
	}
}

func tlsKeys() schema.Section[TLS] {
	return schema.Section[TLS]{
		Once: true,
		Keys: []schema.Key[TLS]{
			schema.Path("ca_file", func(to *TLS) *string { return &to.CAFile }, "PEM file of the authority that signed the server's certificate.").By("the machine's authorities"),
			schema.Path("cert_file", func(to *TLS) *string { return &to.CertFile }, "PEM file of the client's certificate; together with `key_file`."),
			schema.Path("key_file", func(to *TLS) *string { return &to.KeyFile }, "PEM file of its key."),
			schema.String("server_name", func(to *TLS) *string { return &to.ServerName }, "The name that the server's certificate must be for.").By("the host of the URL"),
		},
	}
}

// leastMasters is the smallest number of masters that keeps a majority after the loss of one.
const leastMasters = 3

// readQuorum reads the URLs of independent masters.
func readQuorum(r *schema.Reader, v document.Value) ([]string, bool) {
	urls, ok := schema.List(r, v, "a list of URLs", func(item document.Value) (string, bool) { return redisURL(r, item, "quorum", oneMaster) })
	if !ok {
		return nil, false
	}
	if n := len(urls); n < leastMasters || n%2 == 0 {
		r.Fault(v, "quorum names %d masters; write an odd number, %d at least", n, leastMasters)
	}
	for i, item := range v.Items() {
		if slices.Contains(urls[:i], urls[i]) {
			r.Fault(item, "quorum names this master twice")
		}
	}
	return urls, true
}

// oneMaster refuses a URL that names more than one server.
func oneMaster(u RedisURL) error {
	if u.Topology != Single {
		return errors.New("must name one server: redis://, rediss:// or unix://")
	}
	return nil
}

// redisURL reads the URL of a Redis. The messages do not contain the URL, because it may contain a password.
func redisURL(r *schema.Reader, v document.Value, name string, check func(RedisURL) error) (string, bool) {
	e, ok := r.Text(v, "a URL in a string")
	if !ok || e.Open {
		return e.Text, ok
	}
	u, err := ParseRedisURL(e.Text)
	if err == nil {
		err = check(u)
	}
	if err != nil {
		r.Fault(v, "%s %v", name, err)
		return e.Text, true
	}
	if u, err := ParseRedisURL(e.Literal); err == nil && u.Password != "" {
		r.Warn(v, "a password stands in this file; take it from the environment, as in redis://:${REDIS_PASSWORD}@HOST, or use password_file")
	}
	return e.Text, true
}

// checkRedis checks combinations of keys in [redis].
func checkRedis(r *schema.Reader, to *Redis) {
	u, err := ParseRedisURL(to.URL)
	if file, set := r.Set("redis.password_file"); set && err == nil && u.Password != "" {
		r.Fault(file.AtKey(), "url holds a password as well; keep one of the two")
	}
	acks, acked := r.Set("redis.acked_replicas")
	if quorum, set := r.Set("redis.quorum"); set {
		if acked {
			r.Fault(acks.AtKey(), "acked_replicas has no meaning with quorum, whose masters stand alone; remove one of the two")
		}
		if to.URL == "" {
			r.Fault(quorum.AtKey(), "quorum keeps locks and ticks alone; set url for the history")
		}
	}
	if timeout, set := r.Set("redis.ack_timeout"); set && !acked {
		r.Warn(timeout.AtKey(), "ack_timeout has no effect without acked_replicas; set acked_replicas = 1, or remove it")
	}
	checkSentinel(r, to, u, err == nil)
	if to.TLS == nil {
		return
	}
	tls, _ := r.Set("redis.tls")
	if name, _, _ := strings.Cut(to.URL, "://"); err == nil && !u.TLS && u.Topology == Single && !slices.ContainsFunc(to.Quorum, usesTLS) {
		r.Fault(tls.AtKey(), "tls has no effect with %s://; write rediss:// in url", name)
	}
	checkPair(r, tls, to.TLS)
}

func checkPair(r *schema.Reader, at document.Value, tls *TLS) {
	if (tls.CertFile == "") != (tls.KeyFile == "") {
		r.Fault(at.AtKey(), "cert_file and key_file go together; set both or none")
	}
}

// checkSentinel checks [redis].sentinel. known reports whether u is valid, so that it can be compared.
func checkSentinel(r *schema.Reader, to *Redis, u RedisURL, known bool) {
	if to.Sentinel == nil {
		return
	}
	at, _ := r.Set("redis.sentinel")
	if known && u.Topology != Sentinel {
		r.Fault(at.AtKey(), "sentinel has no effect without redis-sentinel:// in url; remove it, or name the Sentinels")
	}
	if user, set := r.Set("redis.sentinel.user"); set && to.Sentinel.PasswordFile == "" {
		r.Fault(user.AtKey(), "user needs a password_file beside it")
	}
	if tls, set := r.Set("redis.sentinel.tls"); set && to.Sentinel.TLS != nil {
		checkPair(r, tls, to.Sentinel.TLS)
	}
}

// usesTLS reports whether a URL asks for TLS.
func usesTLS(raw string) bool {
	u, err := ParseRedisURL(raw)
	return err == nil && u.TLS
}
