package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
)

// loadIfAny reads the configuration if the user gave a path or the default file exists. Otherwise it returns an empty configuration, for commands that need
// only Redis. faults is the number of faults. If there are any, the returned configuration has only the namespace and the access to Redis.
func (a *app) loadIfAny() (cfg *config.Config, faults int, err error) {
	path, named := a.configFile()
	if !named {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return a.noConfig(), 0, nil
		}
	}
	cfg, err = a.loadConfig()
	var found config.Faults
	if !errors.As(err, &found) {
		return cfg, 0, err
	}
	for _, f := range found {
		if !f.Warning {
			faults++
		}
	}
	cfg, err = a.clusterAccess(path, console.Count(faults, "fault"))
	return cfg, faults, err
}

// clusterAccess returns the namespace and the access to Redis from a faulty configuration. Flags and environment variables take precedence. It requires them
// if the faults make the values uncertain.
func (a *app) clusterAccess(path, faults string) (*config.Config, error) {
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
	if known.RedisErr != nil && known.Redis.PasswordFile != "" { // the servers of the password are uncertain, and so is the use of TLS
		known.Redis.PasswordFile = ""
		withheld = "; its password_file is not sent, since its [redis] is faulty: use CRONCLAVE_REDIS with the password"
	}
	fmt.Fprintf(a.err, "cronclave: warning: %s has %s; its jobs are ignored (run cronclave check)%s\n", path, faults, withheld)
	return &config.Config{Namespace: namespace, Redis: known.Redis, History: config.WholeHistory()}, nil
}
