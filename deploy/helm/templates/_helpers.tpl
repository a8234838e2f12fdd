{{- define "llm-goodput.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "llm-goodput.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "llm-goodput.labels" -}}
{{ include "llm-goodput.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Every pod that runs an exporter has this label, whoever owns the pod. */ -}}
{{- define "llm-goodput.podLabel" -}}
llm-goodput: {{ include "llm-goodput.fullname" . }}
{{- end -}}

{{- define "llm-goodput.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* "true" when the sidecar is a native one. */ -}}
{{- define "llm-goodput.native" -}}
{{- $native := .Values.sidecar.native -}}
{{- if eq (toString $native) "auto" -}}
{{- semverCompare ">=1.29.0-0" .Capabilities.KubeVersion.Version -}}
{{- else -}}
{{- $native -}}
{{- end -}}
{{- end -}}

{{- /* "true" when the exporter runs in pods that are not ours. */ -}}
{{- define "llm-goodput.isSidecar" -}}
{{- or (eq .Values.mode "sidecar") (and (eq .Values.mode "gateway") (eq .Values.gateway.kind "sidecar")) -}}
{{- end -}}

{{- /* What no schema can say. */ -}}
{{- define "llm-goodput.validate" -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- fail "podMonitor and serviceMonitor would scrape everything twice: enable one of them" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enabled) -}}
{{- fail "serviceMonitor needs service.enabled" -}}
{{- end -}}
{{- if and (eq .Values.mode "standalone") (not .Values.config.engines) (not .Values.engine.selector) -}}
{{- fail "mode standalone needs engine.selector, the labels of the engines' pods, or config.engines" -}}
{{- end -}}
{{- if and .Values.gpu.enabled (ne .Values.mode "sidecar") -}}
{{- fail "gpu.enabled reads the node of the engine, so it is for mode sidecar; elsewhere give config.gpus" -}}
{{- end -}}
{{- if and .Values.gateway.hostState (or (ne .Values.mode "gateway") (ne .Values.gateway.kind "daemonset")) -}}
{{- fail "gateway.hostState is for the DaemonSet; elsewhere the state is in the pod, or on standalone's volume" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (eq (include "llm-goodput.isSidecar" .) "true") (not .Values.networkPolicy.podsAreIsolated) -}}
{{- fail "a NetworkPolicy here selects pods of yours and would cut off all else that reaches them; set networkPolicy.podsAreIsolated when other policies select them already" -}}
{{- end -}}
{{- if and .Values.prometheusRule.enabled (not .Values.prometheusRule.rules) -}}
{{- $shipped := .Files.Get "files/goodput.rules.config.yml" | fromYaml -}}
{{- if ne (toJson $shipped.slo_classes) (toJson .Values.config.slo_classes) -}}
{{- fail "config.slo_classes are your own, so the rules must be too: write them with `goodput rules --config.file goodput.yml -o .`, and give them by --set-file prometheusRule.rules=goodput.rules.yml" -}}
{{- end -}}
{{- end -}}
{{- end -}}
