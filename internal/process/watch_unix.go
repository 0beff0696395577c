//go:build linux || darwin

package process

import (
	"context"
	"time"
)

// registerRun registers a run with the warden, if there is one. end removes the registration.
func (s *Spec) registerRun(ctx context.Context, w Warden, t tree) (ward Ward, end func(), err error) {
	if w == nil {
		return unwatched{}, func() {}, nil
	}
	r := Watched{Name: s.Name, Job: s.Job, Grace: s.KillGrace}
	t.describe(&r)
	if s.Lease != nil {
		r.Deadline, r.Lease = s.Lease.Deadline(), s.Lease.Length()
	}
	ward = w.Watch(r)
	end = ward.Release
	if s.Lease != nil { // subscribe before waiting for the warden, because registering may take longer than the lease lasts
		stop := s.Lease.OnExtend(ward.Extend)
		end = func() { stop(); ward.Release() }
		ward.Extend(s.Lease.Deadline()) // the lease may have been extended since Watch
	}
	if err = ward.Known(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return ward, end, nil
}

// unwatched is the [Ward] of a run without a warden.
type unwatched struct{}

func (unwatched) Known(context.Context) error { return nil }
func (unwatched) Started(int)                 {}
func (unwatched) Extend(time.Duration)        {}
func (unwatched) Told()                       {}
func (unwatched) Reap() (bool, time.Duration) { return false, 0 }
func (unwatched) Release()                    {}
