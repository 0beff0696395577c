package dashboard

import "net/url"

// sayings are the messages after an action. A link contains only the key of a message, so a forged link cannot put its own text on a page.
var sayings = map[string]string{
	"asked":    "The run was asked for. It starts as soon as a replica has a place for it, within a minute, or not at all.",
	"started":  "The run has started.",
	"stopping": "The replicas were asked to stop the runs. They get SIGTERM, and SIGKILL after their grace.",
	"idle":     "The runs had ended, so there was nothing to stop.",
	"paused":   "Paused: ticks are skipped until the pause ends. Runs that are under way go on.",
	"resumed":  "Resumed: the job runs from its next tick on.",
}

func saidText(q url.Values) string { return sayings[q.Get("said")] }

func pathSaying(path, key string) string { return path + "?said=" + key }
