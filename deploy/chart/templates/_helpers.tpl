{{- define "checkpoint-guard.labels" -}}
{{ include "checkpoint-guard.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "checkpoint-guard.podLabels" -}}
app.kubernetes.io/name: checkpoint-guard
app.kubernetes.io/part-of: checkpoint-guard
{{- end }}

{{- define "checkpoint-guard.selector" -}}
app.kubernetes.io/name: checkpoint-guard
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "checkpoint-guard.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "checkpoint-guard.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "checkpoint-guard.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "checkpoint-guard.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* A pod's memory of a command that runs once. */}}
{{- define "checkpoint-guard.onceResources" -}}
requests: {cpu: 10m, memory: 96Mi}
limits: {memory: 256Mi}
{{- end }}

{{- define "checkpoint-guard.policy" -}}
{{- toYaml (mergeOverwrite (dict "apiVersion" "checkpoint-guard.io/v1" "kind" "Policy") (deepCopy .Values.policy)) }}
{{- end }}

{{/* What a namespace's own users may set, as CEL: modes.selfService of the policy. */}}
{{- define "checkpoint-guard.selfService" -}}
{{- $modes := get .Values.policy "modes" | default dict }}
{{- $known := ternary (get $modes "selfService") (list "enforce" "warn") (hasKey $modes "selfService") }}
{{- printf "['%s']" (join "', '" $known) | quote }}
{{- end }}

{{/* The component that keeps the registration: with the certificates, or without them. */}}
{{- define "checkpoint-guard.keeper" -}}
{{ eq .Values.certificates.provider "self-signed" | ternary "certs" "keeper" }}
{{- end }}
