package importer

import (
	"strings"
	"testing"
)

// podOf returns a CronJob whose pod and container have the keys.
func podOf(pod, container string) string {
	return "kind: CronJob\nmetadata: {name: j}\nspec:\n  schedule: '@every 5m'\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, " + pod + " containers: [{image: i, " + container + "}]}}}}\n"
}

func sectionOf(lines string) string {
	return "[job-exec \"x\"]\nschedule = @daily\ncontainer = c\n" + lines + "\n"
}

func dkronOf(keys string) string { return `[{"name": "a b", "executor": "shell", ` + keys + `}]` }

// TestOtherDetails has forms of the other sources whose meaning is easily lost.
func TestOtherDetails(t *testing.T) {
	t.Parallel()
	pods, dkron, ofelia := Options{Source: "kubernetes"}, Options{Source: "dkron"}, Options{Source: "ofelia"}
	checkDetails(t, map[string]detail{
		"a value of envFrom":        {pods, "", podOf("", `command: [a, "$(B)"], envFrom: [{secretRef: {name: s}}]`), "$(B) is not known", ""},
		"no value beside envFrom":   {pods, "", podOf("", `command: [a, "$$(B)"], envFrom: [{secretRef: {name: s}}]`), `"$(B)"]`, "not carried:"},
		"the address of a service":  {pods, "", podOf("", `command: [sh, -c, "curl $DB_SERVICE_HOST"]`), "DB_SERVICE_HOST is the address", ""},
		"the user of a pod":         {pods, "", podOf("securityContext: {runAsUser: 1000},", "command: [a]"), "the user 1000", ""},
		"the place of a pod":        {pods, "", podOf("serviceAccountName: s, nodeSelector: {a: b},", "command: [a], resources: {limits: {cpu: 1}}"), "nodeSelector is left out", ""},
		"an interval of kubernetes": {pods, "", podOf("", "command: [a]"), "from the epoch here", ""},
		"a zone before a nickname":  {dkron, "", dkronOf(`"schedule": "TZ=Asia/Tokyo @daily", "executor_config": {"command": "x"}`), `"Asia/Tokyo"`, ""},
		"a zone beside a nickname":  {dkron, "", dkronOf(`"timezone": "Asia/Tokyo", "schedule": "@daily", "executor_config": {"command": "x"}`), "UTC", "Tokyo"},
		"a renamed parent":          {dkron, "", strings.TrimSuffix(dkronOf(`"schedule": "@daily", "executor_config": {"command": "x"}`), "]") + `,{"name": "c", "parent_job": "a b", "executor": "shell", "executor_config": {"command": "y"}}]`, `after = ["a-b"]`, "not carried:"},
		"a secret in a tag":         {dkron, "", dkronOf(`"schedule": "@daily", "metadata": {"api_token": "hunter"}, "executor_config": {"command": "x"}`), "metadata api_token", "hunter"},
		"a pipe without a shell":    {dkron, "", dkronOf(`"schedule": "@daily", "executor_config": {"command": "x | y"}`), notCarried, ""},
		"a user of ofelia":          {ofelia, "", sectionOf("command = a"), `"-u", "root"`, ""},
		"a quote of ofelia":         {ofelia, "", sectionOf(`command = a "b"`), notCarried, ""},
		"a comment of ofelia":       {ofelia, "", sectionOf(`command = a ; b`), "read differently", ""},
		"a quoted value of ofelia":  {ofelia, "", sectionOf(`command = "sh -c 'a; b'"`), `"sh", "-c", "a; b"]`, ""},
		"an operator of ofelia":     {ofelia, "", sectionOf(`command = a > b c`), notCarried, ""},
		"defaults of yacron, merged": {Options{Source: "yacron"}, "", "defaults: {environment: [{key: A, value: '1'}], onFailure: {retry: {maximumRetries: 3, initialDelay: 2}}}\n" +
			"jobs: [{name: j, command: [x], schedule: '@daily', environment: [{key: B, value: '2'}], onFailure: {retry: {initialDelay: 4}}}]\n", `env = { A = "1", B = "2" }`, ""},
		"retries of yacron, merged": {Options{Source: "yacron"}, "", "defaults: {onFailure: {retry: {maximumRetries: 3, initialDelay: 2}}}\n" +
			"jobs: [{name: j, command: [x], schedule: '@daily', onFailure: {retry: {initialDelay: 4}}}]\n", `max = 3, delay = "4s"`, ""},
	})
}
