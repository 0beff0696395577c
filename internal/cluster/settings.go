package cluster

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/cronclave/cronclave/internal/journal"
)

// maxForms is the maximum number of forms of a job that are shown, the most common first. maxSources is the maximum number of configurations in which the
// settings of one form are looked up.
const maxForms, maxSources = 8, 4

// JobSettings are the settings of a job on all replicas. A form is one variant of the settings. If all replicas agree, there is one form. The settings contain
// no argument of a command and no value of a variable. Their JSON is part of the contract with users.
type JobSettings struct {
	Job       string    `json:"job"`
	Agreement Agreement `json:"agreement"`
	// Forms are the variants of the job on the replicas, the most common first.
	Forms []JobForm `json:"forms"`
	// More is the number of further forms.
	More int `json:"more,omitempty"`
	// Fault is the reason why settings are unknown, such as an unavailable Redis or damaged data; "" if there is none.
	Fault string `json:"fault,omitempty"`
	// Differing are the keys whose values differ between the known forms, in the order of [JobSettings.Keys].
	Differing []string `json:"differing"`
}

// Agreement is the result of a comparison of a job's settings on all replicas.
type Agreement string

// The agreements.
const (
	SettingsAgree   Agreement = "agree"
	SettingsDiffer  Agreement = "differ"  // values of keys differ, or some replicas do not have the job
	SettingsHidden  Agreement = "hidden"  // something differs that is not shown: an argument, a variable's value, a day of a calendar, the slots of a pool
	SettingsAbsent  Agreement = "absent"  // no replica has the job
	SettingsUnknown Agreement = "unknown" // the settings of some replicas are unknown, and the known ones agree
)

// A FormState shows whether the settings of a form are known.
type FormState string

// The states of a form.
const (
	FormKnown   FormState = "known"
	FormAbsent  FormState = "absent"  // these replicas do not have the job
	FormUnknown FormState = "unknown" // the settings are not published yet, too large to be published, damaged, or from an older version that does not publish them
)

// A JobForm is one variant of a job, with the replicas that have it.
type JobForm struct {
	State    FormState `json:"state"`
	Digest   string    `json:"digest,omitempty"`
	Replicas []string  `json:"replicas"` // by name
	// Settings are all keys of a job with their values in effect, in the order of docs/configuration.md.
	Settings []journal.Setting `json:"settings"`
}

// Setting returns the value of a key; ok is false if the form does not have it.
func (f JobForm) Setting(key string) (value string, ok bool) {
	i := slices.IndexFunc(f.Settings, func(s journal.Setting) bool { return s.Key == key })
	if i < 0 {
		return "", false
	}
	return f.Settings[i].Value, true
}

// Keys returns the keys of all forms, each once, in the order of their first appearance in Forms.
func (s *JobSettings) Keys() (keys []string) {
	have := map[string]bool{}
	for _, f := range s.Forms {
		for _, setting := range f.Settings {
			if !have[setting.Key] {
				have[setting.Key] = true
				keys = append(keys, setting.Key)
			}
		}
	}
	return keys
}

// Settings reads the settings of a job that the given replicas have published. If Redis fails, the settings are unknown. That is not an error, because the rest
// of the status does not need them.
func (o *Operator) Settings(ctx context.Context, replicas []Replica, job string) *JobSettings {
	s := &JobSettings{Job: job, Agreement: SettingsUnknown, Forms: []JobForm{}, Differing: []string{}} // empty lists are [] in JSON, not null
	job, _ = journal.InstanceOf(job)                                                                   // replicas publish the jobs of their files
	configs := map[string]bool{}
	for _, r := range replicas {
		configs[r.ConfigDigest] = true
	}
	digests, err := o.journal.Digests(ctx, slices.Sorted(maps.Keys(configs)))
	if s.setFault(err) {
		return s
	}
	forms := sourcesOf(replicas, digests, job)
	s.More = max(len(forms)-maxForms, 0)
	var sources []journal.ConfigID
	for _, f := range forms[:len(forms)-s.More] {
		sources = append(sources, f.sources...)
	}
	known, err := o.journal.Settings(ctx, job, sources)
	s.setFault(err)
	for _, f := range forms[:len(forms)-s.More] {
		s.Forms = append(s.Forms, f.withSettings(known))
	}
	s.Differing = differingKeys(s.Keys(), s.Forms)
	s.Agreement = s.compareForms()
	return s
}

// setFault records an error, and reports whether the error leaves all settings unknown. After an error about damaged data, other settings are known.
func (s *JobSettings) setFault(err error) bool {
	if err == nil {
		return false
	}
	s.Fault = FirstLine(err.Error(), maxFault)
	return !errors.Is(err, journal.ErrCorrupt)
}

// maxFault is the maximum length of a fault, in characters.
const maxFault = 300

// A sourcedForm is a form with the configurations in which its settings are looked up.
type sourcedForm struct {
	JobForm
	sources []journal.ConfigID
}

// sourcesOf groups replicas by their form of a job, the most common first.
func sourcesOf(replicas []Replica, digests map[string]map[string]string, job string) []sourcedForm {
	var forms []sourcedForm
	for _, r := range replicas {
		state, digest := FormUnknown, ""
		if jobs := digests[r.ConfigDigest]; jobs != nil {
			if digest = FirstLine(jobs[job], longestDigest); digest == "" {
				state = FormAbsent
			}
		}
		i := slices.IndexFunc(forms, func(f sourcedForm) bool { return f.State == state && f.Digest == digest })
		if i < 0 {
			i, forms = len(forms), append(forms, sourcedForm{JobForm: JobForm{State: state, Digest: digest, Settings: []journal.Setting{}}})
		}
		f, id := &forms[i], journal.ConfigID{Digest: r.ConfigDigest, Version: r.Version}
		f.Replicas = append(f.Replicas, r.Name)
		if digest != "" && len(f.sources) < maxSources && !slices.Contains(f.sources, id) {
			f.sources = append(f.sources, id)
		}
	}
	for i := range forms {
		slices.Sort(forms[i].Replicas)
	}
	slices.SortStableFunc(forms, func(a, b sourcedForm) int {
		return cmp.Or(len(b.Replicas)-len(a.Replicas), cmp.Compare(a.Replicas[0], b.Replicas[0]))
	})
	return forms
}

// longestDigest is the maximum length of a digest, in characters. Longer texts are cut, because another program may have written them.
const longestDigest = 40

func (f sourcedForm) withSettings(known map[journal.ConfigID][]journal.Setting) JobForm {
	for _, id := range f.sources {
		if settings, ok := known[id]; ok {
			f.State, f.Settings = FormKnown, settings
			break
		}
	}
	return f.JobForm
}

func differingKeys(keys []string, forms []JobForm) []string {
	known := slices.DeleteFunc(slices.Clone(forms), func(f JobForm) bool { return f.State != FormKnown })
	list := []string{} // an empty list is [] in JSON, not null
	for _, key := range keys {
		if slices.ContainsFunc(known, func(f JobForm) bool { return !sameSetting(f, known[0], key) }) {
			list = append(list, key)
		}
	}
	return list
}

func sameSetting(a, b JobForm, key string) bool {
	x, inA := a.Setting(key)
	y, inB := b.Setting(key)
	return x == y && inA == inB
}

// Hidden reports whether two known forms have equal settings. Such forms differ in something that is not shown.
func (s *JobSettings) Hidden() bool {
	for i, f := range s.Forms {
		same := func(other JobForm) bool { return other.State == FormKnown && slices.Equal(other.Settings, f.Settings) }
		if f.State == FormKnown && slices.ContainsFunc(s.Forms[i+1:], same) {
			return true
		}
	}
	return false
}

func (s *JobSettings) compareForms() Agreement {
	count := map[FormState]int{}
	for _, f := range s.Forms {
		count[f.State]++
	}
	switch {
	case len(s.Differing) > 0, count[FormKnown] > 0 && count[FormAbsent] > 0:
		return SettingsDiffer
	case s.Hidden():
		return SettingsHidden
	case count[FormUnknown] > 0, s.More > 0, len(s.Forms) == 0:
		return SettingsUnknown
	case count[FormKnown] == 0:
		return SettingsAbsent
	}
	return SettingsAgree
}
