{{/* Name of the manager's objects. */}}
{{- define "swingpool.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that single out the manager's pods. */}}
{{- define "swingpool.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: manager
{{- end -}}

{{/* Labels of every object of the chart. */}}
{{- define "swingpool.labels" -}}
{{ include "swingpool.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "swingpool.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "swingpool.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* Reference of an image: its values, and the tag it has if they name none. */}}
{{- define "swingpool.reference" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .tag) -}}
{{- end -}}
{{- end -}}

{{- define "swingpool.image" -}}
{{- include "swingpool.reference" (dict "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{- define "swingpool.envoyImage" -}}
{{- if .Values.envoy.fromSwingpoolImage -}}
{{- include "swingpool.image" . -}}
{{- else -}}
{{- include "swingpool.reference" (dict "image" .Values.envoy.image "tag" "latest") -}}
{{- end -}}
{{- end -}}

{{- define "swingpool.vllmImage" -}}
{{- include "swingpool.reference" (dict "image" .Values.vllm.image "tag" "latest") -}}
{{- end -}}
