package config

import (
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	// mostAcked bounds how many replicas a write may have to reach.
	mostAcked = 100
	// ack_timeout is a part of the time that one round trip may take.
	leastAckTimeout, mostAckTimeout = time.Millisecond, 500 * time.Millisecond
)

func redisKeys() section[Redis] {
	return section[Redis]{
		once: true,
		keys: []key[Redis]{
			{
				name: "url", kind: "Redis URL", read: readURL,
				doc: "Where Redis is: see [Redis URLs](#redis-urls). `--redis` and `CRONCLAVE_REDIS` go before it.",
			},
			{
				name: "quorum", kind: "list of Redis URLs", allowed: "an odd number, 3 at least, each of one server", read: readQuorum,
				doc: "Independent masters that hold locks and ticks. `url` is required beside it, and keeps the history.",
			},
			{
				name: "password_file", kind: kindPath, doc: "A file with the password. Not beside a password in `url`.",
				read: func(r *reader, v value, to *Redis) { assign(&to.PasswordFile)(r.ownPath(v, true)) },
			},
			{
				name: "tls", kind: kindTable, doc: "Certificates for `rediss://`: see [`[redis].tls`](#redistls).",
				read: func(r *reader, v value, to *Redis) {
					to.TLS = &TLS{}
					read(r, v, tlsKeys(), to.TLS)
				},
			},
			integerKey("acked_replicas", 0, mostAcked, func(to *Redis) *int { return &to.AckedReplicas },
				"How many replicas of Redis must have a grant or a renewal before it counts. Not with `quorum`."),
			durationKey("ack_timeout", leastAckTimeout, mostAckTimeout, func(to *Redis) *time.Duration { return &to.AckTimeout }, "How long these replicas have for it."),
		},
	}
}

func tlsKeys() section[TLS] {
	return section[TLS]{
		once: true,
		keys: []key[TLS]{
			{
				name: "ca_file", kind: kindPath, standard: says[TLS](prose("the machine's authorities")), doc: "PEM file of the authority that signed the server's certificate.",
				read: func(r *reader, v value, to *TLS) { assign(&to.CAFile)(r.ownPath(v, false)) },
			},
			{
				name: "cert_file", kind: kindPath, doc: "PEM file of the client's certificate; together with `key_file`.",
				read: func(r *reader, v value, to *TLS) { assign(&to.CertFile)(r.ownPath(v, false)) },
			},
			{
				name: "key_file", kind: kindPath, doc: "PEM file of its key.",
				read: func(r *reader, v value, to *TLS) { assign(&to.KeyFile)(r.ownPath(v, true)) },
			},
			stringKey("server_name", func(to *TLS) *string { return &to.ServerName }, "The name that the server's certificate must be for.").by("the host of the URL"),
		},
	}
}

// path reads the path of a file or folder, relative to the folder of the file that names it.
func (r *reader) path(v value) (string, bool) {
	path, ok := r.word(v, "a path in a string")
	return v.relative(path), ok
}

// ownPath reads the path of a file that the replica opens for itself.
func (r *reader) ownPath(v value, secret bool) (string, bool) {
	path, ok := r.path(v)
	if ok {
		r.ownFile(v, path, secret)
	}
	return path, ok
}

// readURL reads [redis].url.
func readURL(r *reader, v value, to *Redis) {
	assign(&to.URL)(r.redisURL(v, "url", func(RedisURL) error { return nil }))
}

// leastMasters is of how many masters a majority is more than all but one of them.
const leastMasters = 3

// readQuorum reads [redis].quorum.
func readQuorum(r *reader, v value, to *Redis) {
	urls, ok := list(r, v, "a list of URLs", func(item value) (string, bool) { return r.redisURL(item, "quorum", oneMaster) })
	if !ok {
		return
	}
	to.Quorum = urls
	if n := len(urls); n < leastMasters || n%2 == 0 {
		r.fault(v, "quorum names %d masters; write an odd number, %d at least", n, leastMasters)
	}
	for i, item := range v.items() {
		if slices.Contains(urls[:i], urls[i]) {
			r.fault(item, "quorum names this master twice")
		}
	}
}

// oneMaster refuses a URL that is not one independent server.
func oneMaster(u RedisURL) error {
	if u.Topology != Single {
		return errors.New("must name one server: redis://, rediss:// or unix://")
	}
	return nil
}

// redisURL reads the URL of a Redis. No message repeats it, since it may hold a password.
func (r *reader) redisURL(v value, name string, check func(RedisURL) error) (string, bool) {
	e, ok := r.text(v, "a URL in a string")
	if !ok || e.open {
		return e.text, ok
	}
	u, err := ParseRedisURL(e.text)
	if err == nil {
		err = check(u)
	}
	if err != nil {
		r.fault(v, "%s %v", name, err)
		return e.text, true
	}
	if u, err := ParseRedisURL(e.literal); err == nil && u.Password != "" {
		r.warn(v, v.at.val, "a password stands in this file; take it from the environment, as in redis://:${REDIS_PASSWORD}@HOST, or use password_file")
	}
	return e.text, true
}

// checkRedis checks the settings of [redis] against each other.
func (r *reader) checkRedis(to *Redis) {
	u, err := ParseRedisURL(to.URL)
	if file, set := r.set["redis.password_file"]; set && err == nil && u.Password != "" {
		r.faultAt(file, file.at.key, "url holds a password as well; keep one of the two")
	}
	acks, acked := r.set["redis.acked_replicas"]
	if quorum, set := r.set["redis.quorum"]; set {
		if acked {
			r.faultAt(acks, acks.at.key, "acked_replicas has no meaning with quorum, whose masters stand alone; remove one of the two")
		}
		if to.URL == "" {
			r.faultAt(quorum, quorum.at.key, "quorum keeps locks and ticks alone; set url for the history")
		}
	}
	if timeout, set := r.set["redis.ack_timeout"]; set && !acked {
		r.warn(timeout, timeout.at.key, "ack_timeout has no effect without acked_replicas; set acked_replicas = 1, or remove it")
	}
	if to.TLS == nil {
		return
	}
	tls := r.set["redis.tls"]
	if name, _, _ := strings.Cut(to.URL, "://"); err == nil && !u.TLS && u.Topology == Single && !slices.ContainsFunc(to.Quorum, secure) {
		r.faultAt(tls, tls.at.key, "tls has no effect with %s://; write rediss:// in url", name)
	}
	if (to.TLS.CertFile == "") != (to.TLS.KeyFile == "") {
		r.faultAt(tls, tls.at.key, "cert_file and key_file go together; set both or none")
	}
}

// secure returns whether a URL asks for TLS.
func secure(raw string) bool {
	u, err := ParseRedisURL(raw)
	return err == nil && u.TLS
}
