{{- define "cronclave.name" -}}
{{- if contains "cronclave" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-cronclave" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "cronclave.selector" -}}
app.kubernetes.io/name: cronclave
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cronclave.labels" -}}
{{ include "cronclave.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- /* The lines of jobs.toml that a replica uses only from its start on: namespace, [redis], [replica], [history] and [server]. */}}
{{- define "cronclave.fixedLines" -}}
{{- $table := "" }}
{{- range splitList "\n" .Values.config }}
{{- if regexMatch `^\s*\[` . }}{{ $table = . }}{{ end }}
{{- $here := ternary . $table (empty $table) }}
{{- if and (regexMatch `^[\s\["']*(namespace|redis|replica|history|server)\b` $here) (not (regexMatch `^\s*(#.*)?$` .)) }}{{ trim . }}{{ "\n" }}{{ end }}
{{- end }}
{{- end }}

{{- /* Refuses a jobs.toml with which the liveness probe would restart every pod for ever, or Kubernetes would kill runs in a drain. A value with a variable is not judged. */}}
{{- define "cronclave.checkConfig" -}}
{{- $reached := false }}
{{- range regexFindAll `(?m)^[^#\n]*\blisten\s*=\s*["'][^"'\n]*["']` .Values.config -1 }}
{{- $address := regexReplaceAll `^.*["'](.*)["']$` . "${1}" }}
{{- if or (contains "${" $address) (and (hasSuffix ":7377" $address) (not (regexMatch `^(localhost|127\.[0-9.]+|\[::1\]):` $address))) }}
{{- $reached = true }}
{{- end }}
{{- end }}
{{- if not $reached }}
{{- fail "config needs a [server] that the kubelet reaches, or the liveness probe would restart every pod: listen = \"0.0.0.0:7377\", and token_file = \"/etc/cronclave-secrets/cronclave-users\"" }}
{{- end }}
{{- $drain := 25.0 }}
{{- range regexFindAll `(?m)^[^#\n]*\bdrain_timeout\s*=\s*["'][^"'\n]*["']` .Values.config -1 }}
{{- $drain = 0.0 }}
{{- range regexFindAll `[0-9.]+(ns|us|µs|ms|s|m|h|d)` (regexReplaceAll `^.*["'](.*)["']$` . "${1}") -1 }}
{{- $unit := get (dict "ns" 0.000000001 "us" 0.000001 "µs" 0.000001 "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0) (regexFind `[a-zµ]+` .) }}
{{- $drain = addf $drain (mulf (regexFind `^[0-9.]+` . | float64) $unit) }}
{{- end }}
{{- end }}
{{- if gt (addf $drain 9.0) (float64 .Values.terminationGracePeriodSeconds) }}
{{- fail (printf "terminationGracePeriodSeconds is %v, and a drain takes drain_timeout + 9 s: set it to %v or more" .Values.terminationGracePeriodSeconds (addf $drain 9.0 | ceil | int)) }}
{{- end }}
{{- end }}
