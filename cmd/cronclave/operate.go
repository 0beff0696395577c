package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// operating is the access of a command to a cluster.
type operating struct {
	*cluster.Operator
	redis  *redisconn.Conn
	faulty bool // the configuration is faulty, so its jobs are unknown
}

// openOperator opens the cluster that the flags, the environment or the configuration describe.
func (a *app) openOperator(ctx context.Context) (*operating, error) {
	return a.openOperatorWith(ctx, func(*cronspec.Zones) error { return nil })
}

// openOperatorWith is openOperator, but first calls take with the configuration's time zones. A wrong --zone is therefore reported before the command
// connects to Redis.
func (a *app) openOperatorWith(ctx context.Context, take func(*cronspec.Zones) error) (*operating, error) {
	cfg, faults, err := a.loadIfAny()
	if err == nil {
		err = take(cfg.Zones)
	}
	if err != nil {
		return nil, err
	}
	rdb, err := a.openRedis(cfg)
	if err != nil {
		return nil, err
	}
	j, err := checkRedis(ctx, cfg, rdb)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	o, err := cluster.New(cluster.Config{Conn: rdb, Journal: j, Namespace: cfg.Namespace, Jobs: configuredJobs(cfg), Incomplete: faults > 0,
		Zones: func() *cronspec.Zones { return cfg.Zones }})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &operating{o, rdb, faults > 0}, nil
}

// withOperator opens the cluster, calls do, and closes the cluster.
func (a *app) withOperator(ctx context.Context, do func(*operating) error) error {
	o, err := a.openOperator(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	return o.withExitCode(do(o))
}

// configuredJobs returns the jobs of a configuration, including disabled jobs.
func configuredJobs(cfg *config.Config) []cluster.ConfiguredJob {
	jobs := make([]cluster.ConfiguredJob, len(cfg.Jobs))
	for i, j := range cfg.Jobs {
		jobs[i] = cluster.ConfiguredJob{Name: j.Name, Tags: j.Tags}
	}
	return jobs
}

func (o *operating) close() {
	_ = o.Close()       // waits for background work; an error would not matter
	_ = o.redis.Close() // an error would not matter: no request is in progress
}

// withExitCode adds the exit code to an error of an operator, and advice for the command line.
func (o *operating) withExitCode(err error) error {
	var away *cluster.UnavailableError
	switch {
	case errors.As(err, &away):
		return unavailableError(away.Doing, away.Err)
	case errors.Is(err, cluster.ErrUnknownJob), errors.Is(err, cluster.ErrUnknownTag), errors.Is(err, cluster.ErrNoJobs):
		if o.faulty {
			err = fmt.Errorf("%w (no replica has it; the faulty configuration was not searched)", err)
		}
		return exitError{exitUsage, err}
	case errors.Is(err, cluster.ErrNotATick):
		return usageError("--tick %w", err)
	case errors.Is(err, cluster.ErrInvalid):
		return exitError{exitUsage, err}
	case errors.Is(err, cluster.ErrNotStarted):
		return exitError{exitTimeout, err}
	}
	return err
}
