package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A tree is a value of YAML or JSON whose shape is not known. Its methods return zero values for what is missing.
type tree struct{ value any }

func (t tree) get(keys ...string) tree {
	for _, key := range keys {
		m, _ := t.value.(map[string]any)
		t = tree{m[key]}
	}
	return t
}

func (t tree) set() bool { return t.value != nil }

// text returns a scalar as text, and "" for everything else.
func (t tree) text() string {
	switch v := t.value.(type) {
	case string:
		return v
	case bool, int, int64, uint64:
		return fmt.Sprint(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

func (t tree) number() (int, bool) {
	n, err := number(t.text())
	return n, err == nil
}

// isTrue reports whether a value is true, 1 or "true".
func (t tree) isTrue() bool { s := t.text(); return s == "true" || s == "1" || s == "yes" }

func (t tree) list() (items []tree) {
	list, _ := t.value.([]any)
	for _, v := range list {
		items = append(items, tree{v})
	}
	return items
}

func (t tree) texts() (texts []string) {
	for _, item := range t.list() {
		texts = append(texts, item.text())
	}
	return texts
}

func (t tree) keys() []string {
	m, _ := t.value.(map[string]any)
	return sortedKeys(m)
}

// A document is one document of YAML, with its first line.
type document struct {
	tree
	line int
}

const mostDocuments = 10_000

// readYAML returns the documents of a text. Keys that are written twice are an error.
func readYAML(text string) (docs []document, err error) {
	defer func() { // the library panics on some malformed input
		if p := recover(); p != nil {
			err = fmt.Errorf("malformed YAML: %v", p)
		}
	}()
	d := yaml.NewDecoder(strings.NewReader(text))
	for len(docs) < mostDocuments {
		var node yaml.Node
		if err := d.Decode(&node); err != nil {
			if errors.Is(err, io.EOF) {
				return docs, nil
			}
			return docs, fmt.Errorf("malformed YAML: %w", err)
		}
		var value any
		if err := node.Decode(&value); err != nil {
			return docs, fmt.Errorf("malformed YAML: %w", err)
		}
		docs = append(docs, document{tree{value}, node.Line})
	}
	return docs, errors.New("too many documents")
}

func readManifests(c *conversion, files []File) {
	several := strings.Count(joinTexts(files), "kind: CronJob") > 1
	for _, f := range files {
		if strings.Contains(f.Text, "{{") {
			c.refuseFile(f.Name, "it is a template of Helm or Go: import the output of helm template")
			continue
		}
		docs, err := readYAML(f.Text)
		if err != nil {
			c.refuseFile(f.Name, "%s", strings.Join(strings.Fields(err.Error()), " "))
		}
		for _, d := range docs {
			c.readObject(f, d, several)
		}
	}
}

func joinTexts(files []File) string {
	var b strings.Builder
	for _, f := range files {
		b.WriteString(f.Text)
	}
	return b.String()
}

func (c *conversion) readObject(f File, d document, several bool) {
	switch kind := d.get("kind").text(); {
	case kind == "List" || strings.HasSuffix(kind, "List") && d.get("items").set():
		for _, item := range d.get("items").list() {
			c.readObject(f, document{item, d.line}, several)
		}
	case kind == "CronJob":
		c.readCronJob(f, d, several)
	}
}

func (c *conversion) readCronJob(f File, d document, several bool) {
	spec := d.get("spec")
	name, namespace := d.get("metadata", "name").text(), d.get("metadata", "namespace").text()
	e := c.newEntry(fmt.Sprintf("%s:%d", f.Name, d.line), fmt.Sprintf("CronJob %s, schedule: %q", name, spec.get("schedule").text()))
	wish := name
	if several && namespace != "" {
		wish = namespace + "-" + name
	}
	e.name = c.names.unique(wish)
	if e.name != name {
		e.description = strings.TrimPrefix(namespace+"/"+name, "/")
	}
	e.disabled = spec.get("suspend").isTrue()
	zone := c.useZone(e, spec.get("timeZone").text())
	e.setRobfigTime(strings.Fields(spec.get("schedule").text()), false, zone)
	e.setJobPolicies(spec)
	pod := spec.get("jobTemplate", "spec", "template", "spec")
	containers := pod.get("containers").list()
	if len(containers) != 1 || pod.get("initContainers").set() {
		e.refuse("a pod with %d containers, or with init containers: this takes a command such as kubectl create job --from=cronjob/%s", len(containers), name)
		return
	}
	if policy := pod.get("restartPolicy").text(); policy != "OnFailure" && policy != "Never" {
		e.refuse("restartPolicy %q: the API server refuses it", policy)
	}
	e.setContainer(containers[0])
	notePod(e, pod, containers[0])
	e.setBackoff(spec.get("jobTemplate", "spec", "backoffLimit"))
}

// notePod notes what the pod says about the user, the place and the resources of the command.
func notePod(e *entry, pod, container tree) {
	for _, n := range []struct {
		what tree
		text string
	}{
		{tree{cmp.Or(container.get("securityContext", "runAsUser").value, pod.get("securityContext", "runAsUser").value)}, "it ran as the user %s: see user"},
		{pod.get("serviceAccountName"), "it had the rights of the service account %s: give the command credentials of its own"},
		{container.get("resources"), "resources are left out%s: see limits"},
		{pod.get("nodeSelector"), "nodeSelector is left out%s: see where"},
		{pod.get("affinity"), "affinity is left out%s: see where"},
	} {
		if n.what.set() {
			e.note(n.text, n.what.text())
		}
	}
}

// setRobfigTime sets a schedule of robfig/cron.
func (e *entry) setRobfigTime(words []string, seconds bool, zone *time.Location) {
	t, err := robfigTime(words, seconds)
	if err != nil {
		e.refuse("%v", err)
	}
	if len(words) > 0 && words[0] == "@every" {
		e.note("the interval counts from the start of the scheduler there, and from the epoch here")
	}
	e.setTime(t, zone)
}

// robfigTime parses a schedule as robfig/cron does, with seconds first if they are allowed.
func robfigTime(words []string, seconds bool) (t calendarTime, err error) {
	switch {
	case len(words) == 0:
		return t, errors.New("no schedule")
	case strings.HasPrefix(words[0], "TZ="), strings.HasPrefix(words[0], "CRON_TZ="):
		return t, errors.New("a time zone inside the schedule")
	case words[0] == "@every":
		return calendarTime{exprs: []string{strings.Join(words, " ")}}, nil
	case strings.HasPrefix(words[0], "@"):
		fields, known := nicknames()[words[0]]
		if !known || len(words) > 1 {
			return t, fmt.Errorf("%q is no schedule that can be carried", shorten(strings.Join(words, " ")))
		}
		words = strings.Fields(fields)
	case len(words) != 5 && !(seconds && len(words) == fieldCount):
		return t, fmt.Errorf("a schedule of %d fields", len(words))
	}
	m, err := robfig.parseMoment(words)
	if err != nil {
		return t, err
	}
	return m.express()
}

func (e *entry) setJobPolicies(spec tree) {
	switch policy := spec.get("concurrencyPolicy").text(); policy {
	case "", "Allow":
		e.note("concurrencyPolicy Allow: runs do not overlap here; see parallel")
	case "Forbid":
		e.overlap = "queue"
	case "Replace":
		e.overlap = "replace"
	default:
		e.refuse("concurrencyPolicy %q", policy)
	}
	seconds := func(keys ...string) string {
		if n, ok := spec.get(keys...).number(); ok && n > 0 {
			return fmt.Sprintf("%ds", n)
		}
		return ""
	}
	e.startDeadline = seconds("startingDeadlineSeconds")
	e.timeout = cmp.Or(seconds("jobTemplate", "spec", "activeDeadlineSeconds"), seconds("jobTemplate", "spec", "template", "spec", "activeDeadlineSeconds"), "none")
	e.killGrace = cmp.Or(seconds("jobTemplate", "spec", "template", "spec", "terminationGracePeriodSeconds"), "30s")
	job := spec.get("jobTemplate", "spec")
	if job.get("completionMode").text() == "Indexed" {
		e.refuse("an indexed job: a run here has no index")
	}
	pods, several := job.get("parallelism").number()
	completions, counted := job.get("completions").number()
	switch {
	case several && pods > 1 && (!counted || completions == pods):
		e.parallel, e.perTick = pods, pods
	case counted && completions > 1:
		e.refuse("a job of %d completions", completions)
	case several && pods == 0:
		e.refuse("parallelism: 0, so nothing runs")
	}
}

// setBackoff sets the retries. Kubernetes repeats a failed pod six times by default, after 10s, 20s and so on, up to six minutes.
func (e *entry) setBackoff(limit tree) {
	n, ok := limit.number()
	if !ok {
		n = 6
	}
	if n > 0 {
		e.retry = &retry{max: min(n, 100), delay: "10s", maxDelay: "6m"}
	}
}

// setContainer sets the command of a container. Its image is lost, so the program must be on the machine.
func (e *entry) setContainer(container tree) {
	command, args := container.get("command").texts(), container.get("args").texts()
	image := container.get("image").text()
	e.note("image %s: the command must be on each machine of the cluster", image)
	if len(command) == 0 {
		e.refuse("no command: the program is in the image %s", image)
	}
	values := map[string]string{}
	for _, v := range container.get("env").list() {
		name := v.get("name").text()
		from := v.get("valueFrom")
		switch {
		case from.get("secretKeyRef").set(), from.get("configMapKeyRef").set():
			e.secretEnv(name)
		case from.set():
			e.refuse("the variable %s is a property of the pod", name)
		default:
			value := e.expandKubelet(v.get("value").text(), values, container.get("envFrom").set())
			if e.namesSecret(value) {
				e.secretEnv(name)
				continue
			}
			e.setEnv(name, value)
			if _, known := e.getEnv(name); known {
				values[name] = value
			}
		}
	}
	if container.get("envFrom").set() {
		e.envFile = "/etc/cronclave/" + e.name + ".env"
		e.note("envFrom: write its variables into the file that env_file names")
	}
	if container.get("volumeMounts").set() {
		e.note("volumes are left out: its files must be on each machine")
	}
	for _, word := range append(command, args...) {
		e.argv = append(e.argv, e.expandKubelet(word, values, container.get("envFrom").set()))
	}
	if name := serviceVariable.FindString(strings.Join(e.argv, " ")); name != "" && values[name] == "" {
		e.refuse("the variable %s is the address of a service: it has no value here", name)
	}
	if e.namesSecret(strings.Join(e.argv, " ")) {
		e.refuse("the command holds the value of a secret")
	}
	e.dir = container.get("workingDir").text()
	if e.dir == "" && len(e.argv) > 0 && !path.IsAbs(e.argv[0]) && strings.Contains(e.argv[0], "/") {
		e.refuse("the program %s lies in the working directory of the image", e.argv[0])
	}
	e.ownEnv = true
	if _, known := e.getEnv("PATH"); !known {
		e.setEnv("PATH", servicePath)
	}
}

// namesSecret reports whether a text has $(NAME) for a variable whose value is not known here.
func (e *entry) namesSecret(text string) bool {
	return slices.ContainsFunc(e.envFromFile, func(v variable) bool { return strings.Contains(text, "$("+v.name+")") })
}

var (
	kubeletVariable = regexp.MustCompile(`\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)`)
	serviceVariable = regexp.MustCompile(`\b[A-Z0-9_]+_SERVICE_(?:HOST|PORT)\b`)
)

// expandKubelet replaces $(NAME) by values that are known. An unknown one stays, and $$ is $. With envFrom, other variables may have a value that is not known.
func (e *entry) expandKubelet(text string, values map[string]string, envFrom bool) string {
	return kubeletVariable.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		value, ok := values[found[2:len(found)-1]]
		switch {
		case ok:
			return value
		case envFrom && !e.namesSecret(found), serviceVariable.MatchString(found):
			e.refuse("the value of %s is not known here", found)
		}
		return found
	})
}
