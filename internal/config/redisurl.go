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
)

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
	// TLS reports whether the scheme asks for TLS.
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

// scheme describes a URL scheme.
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

// ParseRedisURL parses the URL of a Redis. The text of an error is the end of a sentence whose subject is the setting with the URL; it never contains the
// URL. These forms are valid:
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

// errNoURL is the error of a URL that can't be parsed.
var errNoURL = errors.New("is not a URL; in a password, write %XX for characters other than letters and digits")

// readAuthority reads the user, the password and the hosts.
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
