//go:build linux || darwin

package command

import (
	"context"
	"time"
)

// watch makes a run known to the warden, if there is one. The function it returns ends that.
func (s *Spec) watch(ctx context.Context, w Warden, t tree) (ward Ward, end func(), err error) {
	if w == nil {
		return unwatched{}, func() {}, nil
	}
	r := Watched{Name: s.Name, Grace: s.KillGrace}
	t.describe(&r)
	if s.Lease == nil {
		ward, err = w.Watch(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		return ward, ward.Release, nil
	}
	r.Deadline, r.Lease = s.Lease.Deadline(), s.Lease.Length()
	if ward, err = w.Watch(ctx, r); err != nil {
		return nil, nil, err
	}
	stop := s.Lease.OnExtend(ward.Extend)
	ward.Extend(s.Lease.Deadline()) // there may have been one meanwhile
	return ward, func() { stop(); ward.Release() }, nil
}

// unwatched is a run without a warden.
type unwatched struct{}

func (unwatched) Started(int)          {}
func (unwatched) Extend(time.Duration) {}
func (unwatched) Told()                {}
func (unwatched) Reap()                {}
func (unwatched) Release()             {}
