package dashboard

import (
	"slices"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
)

// settings are the settings of a job on all replicas. A form is a version of the settings, shared by some replicas. Keys with different values are shown side
// by side.
type settings struct {
	Mark      mark
	Note      string
	Replicas  []string // replicas of each form with known settings
	Differing []setting
	Same      []setting
	Others    []detail // replicas of each form with unknown settings
	More      string
}

// A setting is a key with its value in each form, or with one value if all forms agree.
type setting struct {
	Key    string
	Values []string
}

// Warning returns the mark of keys with different values.
func (*settings) Warning() mark { return markWarning }

func shownSettings(s *cluster.JobSettings) *settings {
	shown := &settings{Mark: markOK, Note: cleanText(console.Agreement(s))}
	if s.Agreement != cluster.SettingsAgree || s.Fault != "" {
		shown.Mark = markWarning
	}
	if s.More > 0 {
		shown.More = console.Count(s.More, "more form") + " not shown."
	}
	var known []cluster.JobForm
	for _, f := range s.Forms {
		if note := console.FormNote(f); note != "" {
			shown.Others = append(shown.Others, detail{cleanText(console.Replicas(f)), note})
			continue
		}
		known = append(known, f)
		shown.Replicas = append(shown.Replicas, cleanText(console.Replicas(f)))
	}
	for _, key := range s.Keys() {
		row := setting{Key: cleanText(key)}
		if !slices.Contains(s.Differing, key) {
			value, _ := known[0].Setting(key)
			row.Values = []string{cleanText(value)}
			shown.Same = append(shown.Same, row)
			continue
		}
		for _, f := range known {
			value, ok := f.Setting(key)
			if !ok {
				value = console.NoSuchKey
			}
			row.Values = append(row.Values, cleanText(value))
		}
		shown.Differing = append(shown.Differing, row)
	}
	return shown
}
