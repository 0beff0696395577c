package scheduler

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// linkTasks sets the chain of each child, and the children of each job.
func linkTasks(tasks map[string]*task) error {
	l := linker{tasks: tasks, specs: map[*task][]*cronspec.Schedule{}}
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		if t := tasks[name]; t != nil {
			l.visitTask(t)
		}
	}
	linkChildren(tasks)
	return errors.Join(l.faults...)
}

// linkChildren sets the children of each job.
func linkChildren(tasks map[string]*task) {
	for _, t := range tasks {
		if t != nil {
			t.children = nil
		}
	}
	for _, t := range tasks {
		if t == nil || !t.isChained() {
			continue
		}
		for _, name := range t.chain.after {
			if before := tasks[name]; before != nil {
				before.children = append(before.children, t)
			}
		}
	}
}

// A linker walks from each job to its parents.
type linker struct {
	tasks  map[string]*task
	specs  map[*task][]*cronspec.Schedule // the schedules of each visited task
	path   []string                       // the names of the tasks on the way from the first task to the current one
	faults []error
}

func (l *linker) addFault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Errorf(format, args...))
}

// visitTask sets the chain of a task and of all its ancestors. It returns the schedules of the task or its ancestors, sorted and without duplicates.
func (l *linker) visitTask(t *task) []*cronspec.Schedule {
	specs, done := l.specs[t]
	switch from := slices.Index(l.path, t.Name); {
	case done:
		return specs
	case from >= 0:
		l.addFault("job %s: After forms a cycle: %s", t.Name, strings.Join(append(slices.Clone(l.path[from:]), t.Name), ", "))
		return nil
	case !t.isChained():
		return []*cronspec.Schedule{t.Spec}
	}
	l.path = append(l.path, t.Name)
	after := slices.Compact(slices.Sorted(slices.Values(t.After)))
	for _, name := range after {
		before, known := l.tasks[name]
		if !known {
			l.addFault("job %s: After names %q, and there is no such job", t.Name, name)
		}
		if before != nil { // an invalid parent is nil, and its fault was reported by newTask
			specs = append(specs, l.visitTask(before)...)
		}
	}
	l.path = l.path[:len(l.path)-1]
	slices.SortFunc(specs, func(a, b *cronspec.Schedule) int { return cmp.Compare(a.Key(), b.Key()) })
	specs = slices.CompactFunc(specs, func(a, b *cronspec.Schedule) bool { return a.Key() == b.Key() })
	l.specs[t] = specs
	t.chain = &chain{after: after, specs: specs, digest: digestOf(after, specs)}
	return specs
}

func digestOf(after []string, specs []*cronspec.Schedule) string {
	text := "after " + strings.Join(after, ", ")
	for _, s := range specs {
		text += "\n" + s.Key()
	}
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:8])
	if allNominal(specs) {
		zone, _, _ := strings.Cut(specs[0].Digest(), ".")
		return zone + "." + digest
	}
	return digest
}

// newTasks validates jobs and returns their tasks by name. Jobs with the same schedule share it, because there may be many of them.
func newTasks(jobs []Job, labels Labels) (map[string]*task, error) {
	var faults []error
	tasks, specs := map[string]*task{}, map[string]*cronspec.Schedule{}
	for _, job := range jobs {
		t, err := newTask(job)
		if err == nil {
			t.Elsewhere = !labels.Include(job.Where)
		}
		if err == nil && !t.isChained() {
			specs[t.Spec.Key()] = orDefault(specs[t.Spec.Key()], t.Spec)
			t.Spec = specs[t.Spec.Key()]
		}
		if _, twice := tasks[job.Name]; twice {
			err = errors.Join(err, fmt.Errorf("job %s: there are two of this name", job.Name))
		}
		faults = append(faults, err)
		tasks[job.Name] = t
	}
	return tasks, errors.Join(append(faults, linkTasks(tasks))...)
}
