package console

import (
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

func TestSettingsReadWell(t *testing.T) {
	t.Parallel()
	known := func(timeout string, replicas ...string) cluster.JobForm {
		return cluster.JobForm{State: cluster.FormKnown, Replicas: replicas, Settings: []journal.Setting{{Key: "schedule", Value: `"@daily"`}, {Key: "timeout", Value: timeout}, {Key: "env_from_file", Value: "–"}}}
	}
	for _, tt := range []struct {
		settings cluster.JobSettings
		want     string
	}{
		{cluster.JobSettings{Agreement: cluster.SettingsAgree, Forms: []cluster.JobForm{known(`"1h"`, "r1", "r2")}}, `
configuration: the same on r1, r2
  schedule          "@daily"
  timeout           "1h"
  env_from_file     –
`},
		{cluster.JobSettings{Agreement: cluster.SettingsDiffer, Differing: []string{"timeout"}, More: 1, Forms: []cluster.JobForm{known(`"1h"`, "r1", "r2"), known(`"2h"`, "r3"),
			{State: cluster.FormAbsent, Replicas: []string{"r4"}}, {State: cluster.FormUnknown, Replicas: strings.Split("s1 s2 s3 s4 s5 s6 s7", " ")}}}, `
! configuration: the replicas differ; give all the same files
! r4: no such job in the configuration
! s1, s2, s3, s4, s5, s6 and 1 more: not known: not published yet, an older version, or too many
  jobs
! 1 more form not shown
  schedule          "@daily"
! timeout           r1, r2: "1h"
                    r3: "2h"
  env_from_file     –
`},
		{cluster.JobSettings{Agreement: cluster.SettingsHidden, Forms: []cluster.JobForm{known(`"1h"`, "r1"), known(`"1h"`, "r2")}}, `
! configuration: the replicas differ in something that is not shown: an argument of the command, a
  value of a variable, a day of a calendar, or the slots of a pool
  schedule          "@daily"
  timeout           "1h"
  env_from_file     –
`},
		{cluster.JobSettings{Agreement: cluster.SettingsDiffer, Differing: []string{"timeout"}, Forms: []cluster.JobForm{known(`"1h"`, "r1"), known(`"2h"`, "r2"), known(`"2h"`, "r3")}}, `
! configuration: the replicas differ, some of them only in something that is not shown: an argument
  of the command, a value of a variable, a day of a calendar, or the slots of a pool; give all the
  same files
  schedule          "@daily"
! timeout           r1: "1h"
                    r2: "2h"
                    r3: "2h"
  env_from_file     –
`},
		{cluster.JobSettings{Agreement: cluster.SettingsUnknown}, "\n! configuration: not known, since no replica is up\n"},
		{cluster.JobSettings{Agreement: cluster.SettingsUnknown, Fault: "read: timeout"}, "\n! configuration: not known: read: timeout\n"},
		{cluster.JobSettings{Agreement: cluster.SettingsAbsent, Forms: []cluster.JobForm{{State: cluster.FormAbsent, Replicas: []string{"r1"}}}},
			"\n! configuration: no replica has the job\n! r1: no such job in the configuration\n"},
	} {
		if got := printed(func(p Printer) { p.printSettings(&tt.settings) }, Printer{}); got != tt.want {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}
