package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var databasePath = regexp.MustCompile(`^/?([0-9]{1,9})?$`)

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
		},
		later: []string{"quorum", "acked_replicas", "ack_timeout"},
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
	if u, err := url.Parse(e.literal); err == nil && hasPassword(u) {
		r.warn(v, v.at.val, "a password stands in this file; take it from the environment, as in redis://:${REDIS_PASSWORD}@HOST, or use password_file")
	}
}

func hasPassword(u *url.URL) bool {
	password, _ := u.User.Password()
	return password != ""
}

// checkRedis checks the settings of [redis] against each other.
func (r *reader) checkRedis(to *Redis) {
	u, err := url.Parse(to.URL)
	if err != nil || to.URL == "" {
		u = &url.URL{}
	}
	if file, set := r.set["redis.password_file"]; set && hasPassword(u) {
		r.faultAt(file, file.at.key, "url holds a password as well; keep one of the two")
	}
	if to.TLS == nil {
		return
	}
	tls := r.set["redis.tls"]
	if u.Scheme != "" && u.Scheme != "rediss" && CheckRedisURL(to.URL) == nil {
		r.faultAt(tls, tls.at.key, "tls has no effect with %s://; write rediss:// in url", u.Scheme)
	}
	if (to.TLS.CertFile == "") != (to.TLS.KeyFile == "") {
		r.faultAt(tls, tls.at.key, "cert_file and key_file go together; set both or none")
	}
}

// CheckRedisURL tells what is wrong with the URL of a Redis, in words that complete a sentence which begins with the
// URL's name. They do not repeat the URL. Accepted are
//
//	redis://[USER][:PASSWORD]@HOST[:PORT][/DB]
//	rediss://... (the same over TLS)
//	unix://[USER][:PASSWORD]@/PATH[?db=DB]
func CheckRedisURL(raw string) error {
	scheme, _, found := strings.Cut(raw, "://")
	switch {
	case found && (scheme == "redis-sentinel" || scheme == "redis-cluster"):
		return fmt.Errorf("begins with %s://, which is not supported yet; name a single Redis", scheme)
	case !found || scheme != "redis" && scheme != "rediss" && scheme != "unix":
		return errors.New("must begin with redis://, rediss:// or unix://")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("is not a URL; in a password, write %XX for characters other than letters and digits")
	}
	if u.Fragment != "" {
		return errors.New("must not have a #; in a password, write %23")
	}
	if scheme == "unix" {
		return checkSocket(u)
	}
	switch port := u.Port(); {
	case u.Hostname() == "":
		return errors.New("names no host")
	case port != "" && !inRange(port, 1, 65535):
		return errors.New("has a port that is not from 1 to 65535")
	case !databasePath.MatchString(u.Path):
		return errors.New("must end with the number of a database, such as /0, or with nothing after the host")
	case u.RawQuery != "":
		return errors.New("must not have a query (what follows the ?)")
	}
	return nil
}

func checkSocket(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	db := query.Get("db")
	query.Del("db")
	switch {
	case u.Host != "" || u.Path == "" || u.Path == "/":
		return errors.New("must name a socket by an absolute path: unix:///run/redis.sock")
	case err != nil || len(query) > 0 || db != "" && !inRange(db, 0, 1<<30):
		return errors.New("must have no query but the number of a database, as in ?db=1")
	}
	return nil
}

func inRange(digits string, least, most int) bool {
	n, err := strconv.Atoi(digits)
	return err == nil && n >= least && n <= most
}
