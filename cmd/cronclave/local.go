package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
)

// loadIfAny reads the configuration if it is named or there; else it is empty, for commands that need only Redis. faults is how many it has: then it
// is nothing but the way to the cluster.
func (a *app) loadIfAny() (cfg *config.Config, faults int, err error) {
	path, named := a.configFile()
	if !named {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return a.noConfig(), 0, nil
		}
	}
	cfg, err = a.load()
	var found config.Faults
	if !errors.As(err, &found) {
		return cfg, 0, err
	}
	for _, f := range found {
		if !f.Warning {
			faults++
		}
	}
	cfg, err = a.access(path, console.Count(faults, "fault"))
	return cfg, faults, err
}

// access is the way to the cluster of a faulty configuration. The flags and the environment go before what it says, and are demanded where what it
// says is in doubt.
func (a *app) access(path, faults string) (*config.Config, error) {
	known := config.ReadAccess(path, config.Options{})
	namespace := a.namespace
	if namespace == "" {
		if known.NamespaceErr != nil {
			return nil, usageError("the namespace is not known: %s has %s, and %w; use --namespace, or mend the faults that cronclave check prints", path, faults, known.NamespaceErr)
		}
		namespace = known.Namespace
	}
	if known.RedisErr != nil {
		if a.redisURL == "" && os.Getenv(envRedis) == "" {
			return nil, usageError("no Redis named: %s has %s, and %w; use --redis or CRONCLAVE_REDIS, or mend the faults that cronclave check prints", path, faults, known.RedisErr)
		}
	}
	withheld := ""
	if known.RedisErr != nil && known.Redis.PasswordFile != "" { // for which servers it is, and whether over TLS, is not known
		known.Redis.PasswordFile = ""
		withheld = "; its password_file is not sent, since its [redis] is faulty: use CRONCLAVE_REDIS with the password"
	}
	fmt.Fprintf(a.err, "cronclave: warning: %s has %s; its jobs are ignored (run cronclave check)%s\n", path, faults, withheld)
	return &config.Config{Namespace: namespace, Redis: known.Redis, History: config.WholeHistory()}, nil
}
