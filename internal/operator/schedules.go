package operator

import "context"

// Schedules returns the schedules of enabled jobs as replicas have described them, by the jobs' names. A job that runs after others, or whose schedule this
// version cannot read, has none.
func (o *Operator) Schedules(ctx context.Context) (map[string]Scheduled, error) {
	infos, err := o.described(ctx)
	if err != nil {
		return nil, err
	}
	jobs := map[string]Scheduled{}
	for _, info := range infos {
		if !info.Enabled || len(info.After) > 0 {
			continue
		}
		if spec, zone, err := scheduleOf(info); err == nil {
			jobs[info.Name] = Scheduled{info.Name, spec, zone}
		}
	}
	return jobs, nil
}
