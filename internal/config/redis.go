package config

import (
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
		keys: map[string]func(*reader, value, *Redis){
			"url": readURL,
			"password_file": func(r *reader, v value, to *Redis) {
				assign(&to.PasswordFile)(r.path(v))
			},
			"tls": func(r *reader, v value, to *Redis) {
				to.TLS = &TLS{}
				read(r, v, tlsKeys(), to.TLS)
			},
			"acked_replicas": func(r *reader, v value, to *Redis) { assign(&to.AckedReplicas)(r.integer(v, 0, mostAcked)) },
			"ack_timeout":    func(r *reader, v value, to *Redis) { assign(&to.AckTimeout)(r.ackTimeout(v)) },
		},
		later: []string{"quorum"},
	}
}

func tlsKeys() section[TLS] {
	return section[TLS]{
		once: true,
		keys: map[string]func(*reader, value, *TLS){
			"ca_file":     func(r *reader, v value, to *TLS) { assign(&to.CAFile)(r.path(v)) },
			"cert_file":   func(r *reader, v value, to *TLS) { assign(&to.CertFile)(r.path(v)) },
			"key_file":    func(r *reader, v value, to *TLS) { assign(&to.KeyFile)(r.path(v)) },
			"server_name": func(r *reader, v value, to *TLS) { assign(&to.ServerName)(r.word(v, "a string")) },
		},
	}
}

// path reads the path of a file or folder, relative to the folder of the file that names it.
func (r *reader) path(v value) (string, bool) {
	path, ok := r.word(v, "a path in a string")
	return v.relative(path), ok
}

// readURL reads [redis].url. No message repeats it, since it may hold a password.
func readURL(r *reader, v value, to *Redis) {
	e, ok := r.text(v, "a URL in a string")
	if !ok {
		return
	}
	to.URL = e.text
	if e.open {
		return
	}
	if err := CheckRedisURL(e.text); err != nil {
		r.fault(v, "url %v", err)
		return
	}
	if u, err := ParseRedisURL(e.literal); err == nil && u.Password != "" {
		r.warn(v, v.at.val, "a password stands in this file; take it from the environment, as in redis://:${REDIS_PASSWORD}@HOST, or use password_file")
	}
}

func (r *reader) ackTimeout(v value) (time.Duration, bool) {
	d, ok := r.duration(v, leastAckTimeout)
	if ok && d > mostAckTimeout {
		r.fault(v, "%s %q is too long; %v is the most", v.name, v.raw, mostAckTimeout)
		return 0, false
	}
	return d, ok
}

// checkRedis checks the settings of [redis] against each other.
func (r *reader) checkRedis(to *Redis) {
	u, err := ParseRedisURL(to.URL)
	if file, set := r.set["redis.password_file"]; set && err == nil && u.Password != "" {
		r.faultAt(file, file.at.key, "url holds a password as well; keep one of the two")
	}
	_, acked := r.set["redis.acked_replicas"]
	if timeout, set := r.set["redis.ack_timeout"]; set && !acked {
		r.warn(timeout, timeout.at.key, "ack_timeout has no effect without acked_replicas; set acked_replicas = 1, or remove it")
	}
	if to.TLS == nil {
		return
	}
	tls := r.set["redis.tls"]
	if name, _, _ := strings.Cut(to.URL, "://"); err == nil && !u.TLS && u.Topology == Single {
		r.faultAt(tls, tls.at.key, "tls has no effect with %s://; write rediss:// in url", name)
	}
	if (to.TLS.CertFile == "") != (to.TLS.KeyFile == "") {
		r.faultAt(tls, tls.at.key, "cert_file and key_file go together; set both or none")
	}
}
