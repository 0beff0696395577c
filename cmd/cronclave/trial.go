package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/lease/redis"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// trialRedis is the Redis of `cronclave run --embedded-redis`. The replica uses it inside the process. Other processes use a restricted view through a socket, in a
// folder that only the user of this process may enter. The view lets them read data and follow the output of runs, and refuses all changes that could affect
// which tick runs.
type trialRedis struct {
	server *embedded.Server
	folder string // folder of the socket, or ""
	view   redisconn.View
}

// startTrial starts an embedded Redis. If it cannot create the socket, the Redis has no view, and View.Fault has the reason.
func startTrial() (*trialRedis, error) {
	server, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	r := &trialRedis{server: server}
	if err := r.openView(); err != nil {
		r.view = redisconn.View{Fault: err}
	}
	return r, nil
}

func (r *trialRedis) close() {
	r.server.Close()
	if r.folder != "" {
		_ = os.RemoveAll(r.folder) // if this fails, only an empty socket file remains
	}
}

func (r *trialRedis) openView() error {
	temp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return fmt.Errorf("find the folder for temporary files: %w", err)
	}
	folder, err := os.MkdirTemp(temp, "cronclave-") // accessible to this user only
	if err != nil {
		return fmt.Errorf("make a folder for the socket: %w", err)
	}
	r.folder = folder
	socket := filepath.Join(folder, "redis.sock")
	at := url.URL{Scheme: "unix", Path: socket}
	if u, err := config.ParseRedisURL(at.String()); err != nil || u.Socket != socket {
		return fmt.Errorf("%s is no name for a socket (TMPDIR)", socket)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen on a socket: %w", err)
	}
	look := redis.NewScripts().InspectOnly
	r.server.ServeView(embedded.View{Listener: listener, Reads: trialReads, Scripts: map[string]string{look.SHA: look.Text}, Hides: journal.IsSecretKey, Permits: journal.AsksToFollow})
	r.view.URL = at.String()
	return nil
}

// trialReads are the commands that the view permits: the commands that `status`, `history`, `why`, `audit` and `logs` need. They never block.
var trialReads = strings.Fields(`CLIENT HELLO INFO PING SELECT TIME
	EXISTS GET HEXISTS HGET HGETALL HLEN HMGET HVALS PTTL TYPE
	XRANGE ZCARD ZCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZSCORE`)
