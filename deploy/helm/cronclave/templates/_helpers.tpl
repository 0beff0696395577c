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
