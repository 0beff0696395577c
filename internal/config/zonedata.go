package config

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/zonedata"
)

// zoneDataKey returns the key zone_data. [top.readZones] reads its value before all other keys, because some of them name zones.
func zoneDataKey() schema.Key[top] {
	key := schema.Path("zone_data", func(t *top) *string { return &t.ZoneData },
		"Time zones for this replica in place of those built in: see [time zones](jobs.md#zone-data).").
		Allow("a folder or zip archive with its version, such as `\"/usr/share/zoneinfo\"`").By("the built-in data")
	key.Read = func(*schema.Reader, document.Value, *top) {}
	return key
}

// readZones reads the time zones of zone_data, which replace the built-in ones. After a fault, jobs are checked with the built-in zones.
func (t *top) readZones(r *schema.Reader, roots []document.Value, o Options) {
	for _, root := range roots {
		v, set := root.Get("zone_data")
		if !set {
			continue
		}
		path, ok := readOnce((*schema.Reader).Path)(r, v)
		if !ok {
			continue
		}
		zones, err := zonedata.Read(context.Background(), path, o.Trust)
		var untrusted *safefile.UntrustedError
		switch {
		case errors.As(err, &untrusted):
			r.Fault(v, "%v", untrusted)
		case errors.Is(err, fs.ErrNotExist) && o.KeepUnset:
			r.Warn(v, "zone_data: %s is not on this machine; the times of jobs are checked with the built-in data", path)
		case err != nil:
			r.Fault(v, "zone_data cannot be used: %s", document.OneLine(err.Error()))
		default:
			t.ZoneData, t.Zones = path, zones
		}
	}
}

// checkZones warns if the machine has newer zone data than the data in use. It does not warn if all jobs are in UTC.
func (t *top) checkZones(r *schema.Reader, root document.Value, o Options) {
	inUTC := true
	for i := range t.Jobs {
		inUTC = inUTC && (t.Jobs[i].Location == time.UTC || len(t.Jobs[i].After) > 0)
	}
	if !o.Machine || inUTC {
		return
	}
	folder := o.SystemZones
	if folder == "" {
		folder = zonedata.SystemFolder
	}
	newest, used := zonedata.MachineVersion(context.Background(), folder), t.Zones.Version()
	if newest <= used {
		return
	}
	at, set := r.Set("zone_data")
	if !set {
		at = root
	}
	r.Warn(at, "%s has the zone data %s, newer than %s in use: ticks in zones with new rules are off; set zone_data = %q", folder, newest, used, folder)
}
