{{- /* goodput.yml: what config says, and the sources of the mode where it says none. */ -}}
{{- define "llm-goodput.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- range $key := list "engines" "gateways" "gpus" -}}
{{- if not (index $config $key) -}}
{{- $own := include (printf "llm-goodput.%s" $key) $ | fromYamlArray -}}
{{- if $own -}}
{{- $_ := set $config $key $own -}}
{{- end -}}
{{- end -}}
{{- end -}}
# goodput.yml
{{ toYaml $config }}
{{- end -}}

{{- define "llm-goodput.engines" -}}
{{- $entry := dict "name" "vllm" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $_ := set $entry "url" (printf "http://localhost:%d%s" (int .Values.engine.port) .Values.engine.metricsPath) -}}
{{- toYaml (list (mergeOverwrite $entry .Values.engine.options)) -}}
{{- else if eq .Values.mode "standalone" -}}
{{- $name := printf "%s-engines.%s.svc.%s" (include "llm-goodput.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- $_ := set $entry "dns" (dict "name" $name "port" (int .Values.engine.port) "metrics_path" .Values.engine.metricsPath) -}}
{{- toYaml (list (mergeOverwrite $entry .Values.engine.options)) -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{- define "llm-goodput.gateways" -}}
{{- $gateway := .Values.gateway -}}
{{- if eq .Values.mode "gateway" -}}
{{- $entry := dict "name" $gateway.name -}}
{{- if eq $gateway.kind "daemonset" -}}
{{- $_ := set $entry "framing" "cri" -}}
{{- $_ := set $entry "path" (printf "/var/log/pods/%s_%s_*/%s/*.log" $gateway.pods.namespace $gateway.pods.name $gateway.pods.container) -}}
{{- else if $gateway.syslogPort -}}
{{- $_ := set $entry "syslog" (printf "udp://127.0.0.1:%d" (int $gateway.syslogPort)) -}}
{{- else -}}
{{- $_ := set $entry "path" (printf "%s/%s" $gateway.logDirectory $gateway.logFile) -}}
{{- end -}}
{{- toYaml (list (mergeOverwrite $entry $gateway.options)) -}}
{{- else if and (eq .Values.mode "sidecar") .Values.sidecar.middleware.enabled -}}
{{- toYaml (list (dict "name" "engine" "socket" "unix:///run/goodput/requests.sock" "format" "middleware")) -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{- define "llm-goodput.gpus" -}}
{{- if .Values.gpu.enabled -}}
{{- $url := printf "http://%s-gpus.%s.svc.%s:%d/metrics" (include "llm-goodput.fullname" .) .Values.gpu.namespace .Values.clusterDomain (int .Values.gpu.port) -}}
{{- $match := dict "hostname" "$(NODE_NAME)" "namespace" "$(POD_NAMESPACE)" "pod" "$(POD_NAME)" -}}
{{- toYaml (list (dict "name" "node" "url" $url "match" $match)) -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}
