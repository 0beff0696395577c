// Package trial provides the Redis of `run --embedded-redis`. It is a part of the replica's process, and other processes of the same user can read
// from it.
package trial

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
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// Redis is an embedded Redis. The replica reaches it inside the process. Other processes reach a view of it by a Unix socket, in a folder that only
// the user of this process may enter. The view permits reading and following the output of runs, but no change that affects which tick runs.
type Redis struct {
	server *embedded.Server
	folder string // of the socket, or ""
	view   redisconn.View
}

// Start starts an embedded Redis. If the socket can't be made, it runs without the view, and View.Fault has the reason.
func Start() (*Redis, error) {
	server, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	r := &Redis{server: server}
	if err := r.openView(); err != nil {
		r.view = redisconn.View{Fault: err}
	}
	return r, nil
}

// Embedded returns the replica's access to the Redis.
func (r *Redis) Embedded() redisconn.Embedded { return redisconn.InProcess(r.server, r.view) }

// Close ends the Redis and all connections.
func (r *Redis) Close() {
	r.server.Close()
	if r.folder != "" {
		_ = os.RemoveAll(r.folder) // only an empty socket would be left behind
	}
}

func (r *Redis) openView() error {
	temp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return fmt.Errorf("find the folder for temporary files: %w", err)
	}
	folder, err := os.MkdirTemp(temp, "cronclave-") // for this user only
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
	look := script.ForSingle().InspectOnly
	r.server.ServeView(embedded.View{Listener: listener, Reads: reads, Scripts: map[string]string{look.SHA: look.Text}, Hides: journal.IsSecretKey, Permits: journal.AsksToFollow})
	r.view.URL = at.String()
	return nil
}

// reads are the commands that status, history, why, audit and logs need. They never block.
var reads = strings.Fields(`CLIENT HELLO INFO PING SELECT TIME
	EXISTS GET HEXISTS HGET HGETALL HLEN HMGET HVALS PTTL TYPE
	XRANGE ZCARD ZCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZSCORE`)
