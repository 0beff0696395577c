package integration

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/locking"
)

// quorumLocker starts a client of ours on all servers of the scene, but for those that it does not reach.
func (s *scene) quorumLocker(name string, unreached ...int) *locker {
	s.Helper()
	l := &locker{scene: s, name: name, gate: &gate{}}
	config := locking.Config{Owner: name, Timeout: patience}
	for i, r := range s.servers {
		options := clientOptions(r.Client.Options().Addr)
		for _, n := range unreached {
			if i == n {
				options.Addr = "127.0.0.1:1" // where no server listens
			}
		}
		rdb := redis.NewClient(options)
		rdb.AddHook(l.gate)
		config.Quorum = append(config.Quorum, rdb)
	}
	var err error
	l.client, err = locking.New(config)
	must(s.T, err)
	s.Cleanup(func() {
		l.gate.set(dead)
		err := l.client.Close()
		for _, rdb := range config.Quorum {
			err = errors.Join(err, rdb.Close())
		}
		if err != nil {
			s.Error(err)
		}
	})
	return l
}

// countedByNodeOurs has twelve ask at once where eight are allowed. Each tries the nodes in an order of its own making.
func countedByNodeOurs(s *scene) {
	s.crowd(3*allowed/2, func(name string) *locker { return s.quorumLocker(name) })
}

// nodeForgotOurs: A reached the first two nodes, the second restarts without its memory, and B reaches all three.
func nodeForgotOurs(s *scene) {
	a, b := s.quorumLocker("a", 2), s.quorumLocker("b")
	_, _, err := b.client.Mutex("the first request founds the quorum").TryLock(s.ctx)
	must(s.T, err)
	a.wins(long)
	b.refused(long)
	s.servers[1].Restart(lost)
	b.refused(long)
	b.refused(long)
}
