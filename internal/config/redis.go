package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

const (
	mostAcked = 100
	// The bounds of ack_timeout. The upper bound is below the time limit of a round trip (1s), which includes the wait for acknowledgments.
	leastAckTimeout, mostAckTimeout = time.Millisecond, 500 * time.Millisecond
)

func redisKeys() schema.Section[Redis] {
	return schema.Section[Redis]{
		Once: true,
		Keys: []schema.Key[Redis]{
			schema.Field("url", "Redis URL", func(to *Redis) *string { return &to.URL }, func(r *schema.Reader, v document.Value) (string, bool) {
				return redisURL(r, v, "url", func(RedisURL) error { return nil })
			}, "[URL](#redis-urls) of Redis. `--redis` and `CRONCLAVE_REDIS` override it."),
			schema.Field("quorum", "list of Redis URLs", func(to *Redis) *[]string { return &to.Quorum }, readQuorum,
				"Independent masters for locks and ticks. `url` is then required, for the history.").
				Allow("an odd number, at least 3, each of one server"),
			schema.Path("password_file", func(to *Redis) *string { return &to.PasswordFile }, "File with the password, unless `url` has one."),
			schema.Table("tls", func(to *Redis) *TLS { to.TLS = &TLS{}; return to.TLS }, tlsKeys(), "Certificates. Turns TLS on for Sentinel and Cluster; one server needs `rediss://`."),
			schema.Table("sentinel", func(to *Redis) *SentinelAccess { to.Sentinel = &SentinelAccess{}; return to.Sentinel }, sentinelKeys(), "Access to the Sentinels, if it differs from their master's."),
			schema.Integer("acked_replicas", 0, mostAcked, func(to *Redis) *int { return &to.AckedReplicas },
				"Replicas of Redis that must acknowledge each grant and renewal. Not with `quorum`."),
			schema.Duration("ack_timeout", leastAckTimeout, mostAckTimeout, func(to *Redis) *time.Duration { return &to.AckTimeout }, "Time limit for the acknowledgments."),
		},
	}
}

func sentinelKeys() schema.Section[SentinelAccess] {
	return schema.Section[SentinelAccess]{
		Once: true,
		Keys: []schema.Key[SentinelAccess]{
			schema.String("user", func(to *SentinelAccess) *string { return &to.User }, "ACL user; needs `password_file`.").By("the user `default`"),
			schema.Path("password_file", func(to *SentinelAccess) *string { return &to.PasswordFile }, "File with the password of all Sentinels."),
			schema.Table("tls", func(to *SentinelAccess) *TLS { to.TLS = &TLS{}; return to.TLS }, tlsKeys(), "Keys as in `tls`. Turns TLS on for the Sentinels.").By("as for their master"),
		},
	}
}

func tlsKeys() schema.Section[TLS] {
	return schema.Section[TLS]{
		Once: true,
		Keys: []schema.Key[TLS]{
			schema.Path("ca_file", func(to *TLS) *string { return &to.CAFile }, "PEM file of the authority for the server's certificate.").By("the machine's authorities"),
			schema.Path("cert_file", func(to *TLS) *string { return &to.CertFile }, "PEM file of the client's certificate; needs `key_file`."),
			schema.Path("key_file", func(to *TLS) *string { return &to.KeyFile }, "PEM file of its key."),
			schema.String("server_name", func(to *TLS) *string { return &to.ServerName }, "Name that the server's certificate must contain.").By("the host of the URL"),
		},
	}
}

// leastMasters is the smallest number of masters that keeps a majority after the loss of one.
const leastMasters = 3

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

// checkSentinel checks [redis].sentinel. u is the parsed URL. If known is false, the URL is invalid, and u is not checked.
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

func usesTLS(raw string) bool {
	u, err := ParseRedisURL(raw)
	return err == nil && u.TLS
}

var (
	databasePath = regexp.MustCompile(`^/?([0-9]{1,9})?$`)
	// masterName matches the names of masters that Sentinel accepts.
	masterName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
)

// Topology is the kind of Redis deployment that a URL describes.
type Topology int

const (
	// Single is one Redis server.
	Single Topology = iota
	// Sentinel is a master with replicas. The Sentinels in the URL know the address of the current master.
	Sentinel
	// Cluster is a Redis Cluster: several masters, each with a part of the keys.
	Cluster
)

// RedisURL is a parsed URL of a Redis.
type RedisURL struct {
	Topology Topology
	// TLS reports whether the scheme requires TLS.
	TLS            bool
	User, Password string
	// Socket is the path of a Unix socket. It is "" if Addrs is set.
	Socket string
	// Addrs has the host:port of the server, of the Sentinels, or of some nodes of the Cluster.
	Addrs []string
	// Master is the name of the master that Sentinel monitors.
	Master string
	DB     int
}

type scheme struct {
	topology Topology
	tls      bool
	port     string // default port
}

var schemes = map[string]scheme{
	"redis":           {Single, false, "6379"},
	"rediss":          {Single, true, "6379"},
	"redis-sentinel":  {Sentinel, false, "26379"},
	"rediss-sentinel": {Sentinel, true, "26379"},
	"redis-cluster":   {Cluster, false, "6379"},
	"rediss-cluster":  {Cluster, true, "6379"},
}

// ParseRedisURL parses the URL of a Redis. An error is the end of a sentence that begins with the name of the setting, and never contains the URL. These forms
// are valid:
//
//	redis://[USER][:PASSWORD@]HOST[:PORT][/DB]
//	redis-sentinel://[USER][:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/MASTER[/DB]
//	redis-cluster://[USER][:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]
//	rediss://... rediss-sentinel://... rediss-cluster://... (the same over TLS)
//	unix://[USER][:PASSWORD]@/PATH[?db=DB]
func ParseRedisURL(raw string) (RedisURL, error) {
	name, rest, found := strings.Cut(raw, "://")
	if found && name == "unix" {
		return parseSocket(raw)
	}
	s, known := schemes[name]
	switch {
	case !found || !known:
		return RedisURL{}, errors.New("must begin with redis://, rediss://, redis-sentinel://, redis-cluster:// or unix://")
	case strings.Contains(rest, "#"):
		return RedisURL{}, errors.New("must not have a #; in a password, write %23")
	case strings.Contains(rest, "?"):
		return RedisURL{}, errors.New("must not have a query (the part after ?); in a password, write %3F")
	}
	u := RedisURL{Topology: s.topology, TLS: s.tls}
	authority, path, _ := strings.Cut(rest, "/")
	if err := u.readAuthority(authority, s); err != nil {
		return RedisURL{}, err
	}
	return u, u.readPath(path)
}

var errNoURL = errors.New("is not a URL; in a password, write %XX for characters other than letters and digits")

func (u *RedisURL) readAuthority(authority string, s scheme) error {
	hosts := authority
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		who, err := url.Parse("redis://" + authority[:at+1] + "h")
		if err != nil {
			return errNoURL
		}
		u.User = who.User.Username()
		u.Password, _ = who.User.Password()
		hosts = authority[at+1:]
	}
	list := strings.Split(hosts, ",")
	if s.topology == Single && len(list) > 1 {
		return errors.New("must name one server; several are for redis-sentinel:// and redis-cluster://")
	}
	for _, host := range list {
		addr, err := readHost(host, s.port)
		if err != nil {
			return err
		}
		if slices.Contains(u.Addrs, addr) {
			return fmt.Errorf("names %s twice", addr)
		}
		u.Addrs = append(u.Addrs, addr)
	}
	return nil
}

// readHost returns the address HOST:PORT. port is the default port.
func readHost(host, port string) (string, error) {
	h, err := url.Parse("redis://" + host)
	switch {
	case err != nil || strings.Count(host, ":") > 1 && host[0] != '[':
		return "", errNoURL
	case h.Hostname() == "":
		return "", errors.New("names no host")
	case h.Port() == "":
		return net.JoinHostPort(h.Hostname(), port), nil
	case !inRange(h.Port(), 1, 65535):
		return "", errors.New("has a port that is not from 1 to 65535")
	}
	return net.JoinHostPort(h.Hostname(), h.Port()), nil
}

// readPath reads the part after the hosts: the master and the database.
func (u *RedisURL) readPath(path string) error {
	switch u.Topology {
	case Cluster:
		if path != "" && path != "0" {
			return errors.New("must end with the hosts: a Cluster has one database only, 0")
		}
		return nil
	case Sentinel:
		u.Master, path, _ = strings.Cut(path, "/")
		switch {
		case u.Master == "":
			return errors.New("names no master; after the hosts, write the name by which the Sentinels know it, such as /mymaster/0")
		case !masterName.MatchString(u.Master):
			return errors.New("has a master's name with characters other than letters, digits, '.', '-' and '_'")
		}
	}
	if !databasePath.MatchString(path) {
		if u.Topology == Sentinel {
			return errors.New("must end with the number of a database, such as /0, or with nothing after the master")
		}
		return errors.New("must end with the number of a database, such as /0, or with nothing after the host")
	}
	u.DB, _ = strconv.Atoi(strings.TrimPrefix(path, "/")) // an empty path means database 0
	return nil
}

func parseSocket(raw string) (RedisURL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return RedisURL{}, errNoURL
	}
	query, err := url.ParseQuery(u.RawQuery)
	db := query.Get("db")
	query.Del("db")
	switch {
	case u.Fragment != "":
		return RedisURL{}, errors.New("must not have a #; in a password, write %23")
	case u.Host != "" || u.Path == "" || u.Path == "/":
		return RedisURL{}, errors.New("must name a socket by an absolute path: unix:///run/redis.sock")
	case err != nil || len(query) > 0 || db != "" && !inRange(db, 0, 1<<30):
		return RedisURL{}, errors.New("must have no query but the number of a database, as in ?db=1")
	}
	s := RedisURL{User: u.User.Username(), Socket: u.Path}
	s.Password, _ = u.User.Password()
	s.DB, _ = strconv.Atoi(db) // without db, the database is 0
	return s, nil
}

func inRange(digits string, least, most int) bool {
	n, err := strconv.Atoi(digits)
	return err == nil && n >= least && n <= most
}
