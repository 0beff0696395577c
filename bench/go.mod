// A module of its own, so that what we are compared with stays out of cronclave's dependencies.
module github.com/cronclave/cronclave/bench

go 1.26.0

replace github.com/cronclave/cronclave => ../

require (
	github.com/bsm/redislock v0.9.4
	github.com/cronclave/cronclave v0.0.0-00010101000000-000000000000
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	golang.org/x/sys v0.49.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
)
