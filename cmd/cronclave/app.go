package main

import (
	"errors"
	"os"
	"sync/atomic"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/safefile"
)

// app is one execution of the program: its streams, and the global flags of all commands.
type app struct {
	streams
	configPath string
	redisURL   string
	trial      redisconn.Embedded
	rights     redisconn.Rights // rights that cronclave needs from Redis, for advice if some are missing
	namespace  string
	logLevel   string
	logFormat  string
	started    bool                           // whether the command line was valid, so that the command started
	logWriter  atomic.Pointer[logging.Writer] // nil until a logger exists
	force      func(code int)                 // ends the process with an exit code, even if the command hangs
	trust      safefile.Trust                 // which owners of configuration files are accepted
}

// defaultConfig is the path of the configuration if the user gives none.
const defaultConfig = "jobs.toml"

// configFile returns the path of the configuration. named reports whether the user gave it.
func (a *app) configFile() (path string, named bool) {
	switch {
	case a.configPath != "":
		return a.configPath, true
	case os.Getenv(envConfig) != "":
		return os.Getenv(envConfig), true
	}
	return defaultConfig, false
}

// takePath uses the argument of a command, if there is one, as the path of the configuration.
func (a *app) takePath(args []string) error {
	switch {
	case len(args) > 0 && a.configPath != "":
		return usageError("a PATH and --config name the same: leave one of them out")
	case len(args) > 0:
		a.configPath = args[0]
	}
	return nil
}

// loadConfig reads the configuration for a command that needs one.
func (a *app) loadConfig() (*config.Config, error) {
	if err := a.needConfig(); err != nil {
		return nil, err
	}
	cfg, _, err := a.readConfig()
	return cfg, err
}

// needConfig returns an error if the user gave no path of a configuration and the default file does not exist.
func (a *app) needConfig() error {
	path, named := a.configFile()
	if named {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return usageError("no configuration: there is no %s here; name one with --config or CRONCLAVE_CONFIG", path)
	}
	return nil
}

// readConfig reads the configuration. It returns the list of files that were read even if the configuration is faulty.
func (a *app) readConfig() (*config.Config, *config.Files, error) {
	path, _ := a.configFile()
	files := &config.Files{}
	cfg, err := config.Load(path, config.Options{Files: files, Trust: a.trust, Rights: new(process.Accounts).Rights})
	if err == nil && a.namespace != "" {
		cfg.Namespace = a.namespace
	}
	return cfg, files, err
}

// loadIfNamed reads the configuration if the user gave a path. Otherwise it returns an empty configuration: commands that call it work in any folder.
func (a *app) loadIfNamed() (*config.Config, error) {
	if _, named := a.configFile(); named {
		return a.loadConfig()
	}
	return a.noConfig(), nil
}

func (a *app) noConfig() *config.Config {
	return &config.Config{Namespace: orDefault(a.namespace, config.DefaultNamespace), History: config.WholeHistory()}
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
