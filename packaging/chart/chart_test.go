// Package chart checks the Helm chart without a cluster: by helm, by the types of Kubernetes, and by its Pod Security admission.
package chart

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../.."
	chart = root + "/deploy/helm/cronclave"
	plain = root + "/deploy/kubernetes/cronclave.yaml"
)

var update = flag.Bool("update", false, "write the plain manifests")

// everything turns on what is off by default.
var everything = []string{
	"--set", "serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus,priorityClassName=high,nodeSelector.disk=ssd",
	"--set-json", `env=[{"name":"A","value":"b"}]`, "--set-json", `envFrom=[{"secretRef":{"name":"s"}}]`,
	"--set-json", `extraVolumes=[{"name":"data","emptyDir":{}}]`, "--set-json", `extraVolumeMounts=[{"name":"data","mountPath":"/data"}]`,
	"--set-json", `podAnnotations={"a":"b"}`, "--set-json", `podLabels={"c":"d"}`, "--set-json", `tolerations=[{"key":"k","operator":"Exists"}]`,
	"--set-json", `topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule"}]`,
	"--set-json", `affinity={"nodeAffinity":{}}`, "--set-json", `imagePullSecrets=[{"name":"r"}]`,
}

func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "helm"}, args...)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", &failure{err, string(out) + stderr.String()}
	}
	return string(out), nil
}

type failure struct {
	error
	said string
}

func (f *failure) Error() string { return f.error.Error() + ": " + f.said }

func render(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, append([]string{"template", "cronclave", chart, "--namespace", "cronclave"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLint(t *testing.T) {
	for _, args := range [][]string{nil, everything} {
		if _, err := helm(t, append([]string{"lint", "--strict", chart}, args...)...); err != nil {
			t.Error(err)
		}
	}
}

// TestObjectsAreStrict decodes every object into its type, which refuses unknown and mistyped fields, and judges the pods by the profile "restricted".
func TestObjectsAreStrict(t *testing.T) {
	for name, args := range map[string][]string{"defaults": nil, "everything": everything} {
		t.Run(name, func(t *testing.T) {
			kinds := map[string]int{}
			for _, text := range strings.Split(render(t, args...), "\n---\n") {
				var kind struct{ Kind string }
				if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				kinds[kind.Kind]++
				into := map[string]any{"Deployment": &appsv1.Deployment{}, "ConfigMap": &corev1.ConfigMap{}, "Service": &corev1.Service{},
					"PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "ServiceMonitor": &map[string]any{}}[kind.Kind]
				if into == nil {
					t.Fatalf("an object of the kind %q:\n%s", kind.Kind, text)
				}
				if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
					t.Errorf("%s: %v", kind.Kind, err)
				}
				if d, ok := into.(*appsv1.Deployment); ok {
					judgePods(t, d)
				}
				if b, ok := into.(*policyv1.PodDisruptionBudget); ok && (b.Spec.UnhealthyPodEvictionPolicy == nil || *b.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow) {
					t.Error("the budget blocks the drain of a node while Redis is away, and no pod is ready")
				}
			}
			if kinds["Deployment"] != 1 || kinds["PodDisruptionBudget"] != 1 || kinds["ServiceMonitor"] != len(args)/max(len(args), 1) {
				t.Errorf("%v", kinds)
			}
		})
	}
}

// TestRootAndHostNetwork sets what docs/containers.md has for jobs with a user, for TLS and for the network of the host.
func TestRootAndHostNetwork(t *testing.T) {
	values := []string{"--set", "podSecurityContext.runAsNonRoot=false,podSecurityContext.runAsUser=0,probes.scheme=HTTPS,hostNetwork=true,extraArgs={--log-level,debug}",
		"--set", "serviceMonitor.enabled=true,serviceMonitor.tlsConfig.serverName=cron", "--set-json", `env=[{"name":"A","value":"b"}]`,
		"--set-json", `securityContext.capabilities={"drop":["ALL"],"add":["SETUID","SETGID","KILL"]}`}
	for _, text := range strings.Split(render(t, values...), "\n---\n") {
		if strings.Contains(text, "kind: ServiceMonitor") && (!strings.Contains(text, "scheme: https") || !strings.Contains(text, "serverName: cron")) {
			t.Errorf("the ServiceMonitor asks without TLS:\n%s", text)
		}
		if !strings.Contains(text, "kind: Deployment") {
			continue
		}
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		pod := d.Spec.Template.Spec
		c := pod.Containers[0]
		for what, ok := range map[string]bool{
			"user":         *pod.SecurityContext.RunAsUser == 0 && !*pod.SecurityContext.RunAsNonRoot && *pod.SecurityContext.FSGroup == 65532,
			"capabilities": len(c.SecurityContext.Capabilities.Add) == 3 && *c.SecurityContext.ReadOnlyRootFilesystem,
			"probes":       c.LivenessProbe.HTTPGet.Scheme == corev1.URISchemeHTTPS && c.ReadinessProbe.HTTPGet.Scheme == corev1.URISchemeHTTPS,
			"network":      pod.HostNetwork && pod.DNSPolicy == corev1.DNSClusterFirstWithHostNet,
			"name":         len(c.Env) == 2 && c.Env[0].ValueFrom.FieldRef.FieldPath == "metadata.name",
			"arguments":    strings.Join(c.Args, " ") == "run -c /etc/cronclave/jobs.toml --replica=$(POD_NAME) --log-level debug",
		} {
			if !ok {
				t.Errorf("%s:\n%s", what, text)
			}
		}
	}
}

func judgePods(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template
	results := evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)
	if len(results) < 5 {
		t.Errorf("%d checks of the profile were made", len(results))
	}
	for _, r := range results {
		if !r.Allowed {
			t.Errorf("restricted: %s: %s", r.ForbiddenReason, r.ForbiddenDetail)
		}
	}
	c := pod.Spec.Containers[0]
	if !*c.SecurityContext.ReadOnlyRootFilesystem || *pod.Spec.AutomountServiceAccountToken {
		t.Error("the root file system is writable, or a token of a service account is mounted")
	}
	if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("the probes: an outage of Redis must not restart the replicas")
	}
}

// TestSchemaRefuses sets values that are wrong.
func TestSchemaRefuses(t *testing.T) {
	render(t, "--set", "podDisruptionBudget.maxUnavailable=34%")
	for _, set := range []string{"replicaCount=0", "replicas=3", "image.tga=1", "podDisruptionBudget.maxUnavailable=0", "podDisruptionBudget.maxUnavailable=0%", "podDisruptionBudget.maxUnavailable=1x", "serviceMonitor.interval=often", "secretName="} {
		if _, err := helm(t, "template", "x", chart, "--set", set); err == nil || !strings.Contains(err.Error(), "values don't meet the specifications of the schema") {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// TestConfigIsRefused sets a jobs.toml whose pods would be killed: by the liveness probe, which asks port 7377 of the pod, or in a drain.
func TestConfigIsRefused(t *testing.T) {
	const probe, drain = "config needs a [server] that the kubelet reaches", "a drain takes drain_timeout + 9 s"
	const served = "[server]\nlisten = \"0.0.0.0:7377\"\n"
	for _, c := range []struct{ config, refusal string }{
		{"[jobs.a]\n", probe},
		{"[server]\nlisten = \"127.0.0.1:7377\"\n", probe},
		{"[server]\nlisten = \"localhost:7377\"\n", probe},
		{"[server]\nlisten = '[::1]:7377'\n", probe},
		{"[server]\nlisten = \"0.0.0.0:8080\"\n", probe},
		{"[server]\n# listen = \"0.0.0.0:7377\"\n", probe},
		{served, ""},
		{"server = { listen = ':7377' }\n", ""},
		{"server.listen = \"[::]:7377\"\n", ""},
		{"[server]\nlisten = \"${ADDRESS}\"\n", ""},
		{served + "[replica]\ndrain_timeout = \"31s\"\n", ""},
		{served + "[replica]\ndrain_timeout = \"31.5s\"\n", drain},
		{served + "[replica]\ndrain_timeout = \"8m30s\"\n", drain + ": set it to 519 or more"},
		{served + "[replica]\ndrain_timeout = \"1d\"\n", drain},
		{served + "[replica]\n# drain_timeout = \"1d\"\ndrain_timeout = \"31000ms\"\n", ""},
		{served + "[replica]\ndrain_timeout = \"${DRAIN}\"\n", ""},
	} {
		values := filepath.Join(t.TempDir(), "jobs.toml")
		if err := os.WriteFile(values, []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := helm(t, "template", "x", chart, "--set-file", "config="+values)
		if c.refusal == "" && err != nil || c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("%s: %v", c.config, err)
		}
	}
	if _, err := helm(t, "template", "x", chart, "--set", "existingConfigMap=own,config=unused"); err != nil {
		t.Errorf("a ConfigMap that the chart does not have: %v", err)
	}
	if _, err := helm(t, "template", "x", chart, "--set", "terminationGracePeriodSeconds=33"); err == nil || !strings.Contains(err.Error(), drain) {
		t.Errorf("the default drain_timeout, and 33 s: %v", err)
	}
}

// TestSecretsAreDocumented demands that docs/containers.md has the command that makes each Secret, and each key of one, which the chart names by default.
func TestSecretsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	var secrets int
	demand := func(name, option string) {
		t.Helper()
		secrets++
		command := regexp.MustCompile(`(?m)^kubectl -n cronclave create secret generic ` + regexp.QuoteMeta(name) + ` .*` + regexp.QuoteMeta(option) + `( |$)`)
		if !command.Match(page) {
			t.Errorf("docs/containers.md does not make the Secret %s with %s", name, option)
		}
	}
	for _, text := range strings.Split(render(t, "--set", "serviceMonitor.enabled=true"), "\n---\n") {
		var object struct {
			Kind string
			Spec struct {
				Template  corev1.PodTemplateSpec
				Endpoints []struct {
					Authorization struct{ Credentials corev1.SecretKeySelector }
				}
			}
			Data map[string]string
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, e := range object.Spec.Endpoints {
			demand(e.Authorization.Credentials.Name, "--from-file="+e.Authorization.Credentials.Key)
		}
		for _, c := range object.Spec.Template.Spec.Containers {
			for _, from := range c.EnvFrom {
				demand(from.SecretRef.Name, "--from-env-file=cronclave.env")
			}
		}
		for _, file := range regexp.MustCompile(`/etc/cronclave-secrets/([\w-]+)`).FindAllStringSubmatch(object.Data["jobs.toml"], -1) {
			demand("cronclave", "--from-file="+file[1])
		}
	}
	if secrets != 3 {
		t.Errorf("%d keys of Secrets were found in the chart", secrets)
	}
}

// annotations has the annotations of the pods: nothing would renew the sum when somebody edits the plain manifests.
var annotations = regexp.MustCompile(`(?m)^      annotations:\n        #.*\n        checksum/fixed-lines: [0-9a-f]{64}\n`)

// TestPodsAreReplacedWithFixedLines changes jobs.toml: what a replica reads while it runs leaves the pods alone, and what it uses only from its start on replaces them.
func TestPodsAreReplacedWithFixedLines(t *testing.T) {
	const config = "timezone = \"UTC\"\nnamespace = \"a\"\n[server]\nlisten = \"0.0.0.0:7377\" # for all\n[jobs.redis]\nschedule = \"@daily\"\ncommand = \"true\"\n[replica]\ndrain_timeout = \"20s\"\n"
	sum := func(config string) string {
		t.Helper()
		values := filepath.Join(t.TempDir(), "jobs.toml")
		if err := os.WriteFile(values, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		sums := annotations.FindAllString(render(t, "--set-file", "config="+values), -1)
		if len(sums) != 1 {
			t.Fatalf("the sums: %q", sums)
		}
		return sums[0]
	}
	before := sum(config)
	for _, c := range []struct {
		old, new string
		replaces bool
	}{
		{`"@daily"`, `"@hourly"`, false}, {`"UTC"`, `"Asia/Tokyo"`, false}, {"drain_timeout", "# a comment\n\ndrain_timeout", false},
		{"[jobs.redis]", "[pools.server]\nslots = 2\n[jobs.redis]", false},
		{`"a"`, `"b"`, true}, {`"20s"`, `"21s"`, true}, {"listen", "hosts = ['x']\nlisten", true}, {"[server]", "history.runs = 9\n[server]", true},
		{"[server]", "[redis.tls]\nca_file = 'x'\n[server]", true},
	} {
		if after := sum(strings.Replace(config, c.old, c.new, 1)); (after != before) != c.replaces {
			t.Errorf("%s instead of %s: the pods are replaced: %v", c.new, c.old, after != before)
		}
	}
}

// TestPlainManifests keeps deploy/kubernetes equal to the chart with its default values; -update writes it.
func TestPlainManifests(t *testing.T) {
	want := "# Made of deploy/helm/cronclave by `make chart UPDATE=-update`. Needs a namespace, two Secrets and an image:\n#\n" +
		"#\tkubectl create namespace cronclave\n" +
		"#\tkubectl -n cronclave create secret generic cronclave-env --from-env-file=cronclave.env\n" +
		"#\tkubectl -n cronclave create secret generic cronclave --from-file=cronclave-users\n" +
		annotations.ReplaceAllString(strings.ReplaceAll(render(t), "    app.kubernetes.io/managed-by: Helm\n", ""), "")
	if *update {
		if err := os.MkdirAll(filepath.Dir(plain), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(plain, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(plain)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the chart gives: make chart UPDATE=-update (%v)", plain, err)
	}
}

// TestConfigurationIsValid has the program check the jobs.toml of the chart.
func TestConfigurationIsValid(t *testing.T) {
	program := os.Getenv("CRONCLAVE_TEST_PROGRAM")
	if program == "" {
		t.Fatal("CRONCLAVE_TEST_PROGRAM must name a cronclave: make chart")
	}
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Config string }
	if err := yaml.Unmarshal(values, &v); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(file, []byte(v.Config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "check", "--no-env", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
