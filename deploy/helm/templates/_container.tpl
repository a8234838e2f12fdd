{{- /*
The exporter's container. Takes (dict "root" $ "resources" R "group" GID).
In pods that are not ours it has no readiness and no startup probe: monitoring takes no
engine out of service, and keeps none from starting.
*/ -}}
{{- define "llm-goodput.container" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $sidecar := eq (include "llm-goodput.isSidecar" $root) "true" -}}
name: goodput
image: {{ include "llm-goodput.image" $root | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
{{- if and $sidecar (eq (include "llm-goodput.native" $root) "true") }}
restartPolicy: Always
{{- end }}
args:
  - --config.file=/etc/goodput/goodput.yml
  - --config.auto-reload-interval={{ $values.autoReloadInterval }}
  - --storage.path=/var/lib/goodput
  - --web.listen-address=:{{ $values.web.port }}
  - --no-web.enable-lifecycle
  {{- if $values.web.configSecret }}
  - --web.config.file=/etc/goodput-web/web.yml
  {{- end }}
  - --log.level={{ $values.log.level }}
  - --log.format={{ $values.log.format }}
env:
  {{- include "llm-goodput.env" $root | nindent 2 }}
ports:
  - {name: goodput, containerPort: {{ $values.web.port }}, protocol: TCP}
{{- if not $sidecar }}
startupProbe:
  {{- include "llm-goodput.probe" (dict "root" $root "path" "/-/ready") | nindent 2 }}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  {{- include "llm-goodput.probe" (dict "root" $root "path" "/-/ready") | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}
livenessProbe:
  {{- include "llm-goodput.probe" (dict "root" $root "path" "/-/healthy") | nindent 2 }}
  initialDelaySeconds: 10
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
resources:
  {{- toYaml .resources | nindent 2 }}
securityContext:
  {{- include "llm-goodput.securityContext" .group | nindent 2 }}
volumeMounts:
  - {name: goodput-config, mountPath: /etc/goodput, readOnly: true}
  - {name: goodput-state, mountPath: /var/lib/goodput}
  {{- if $values.web.configSecret }}
  - {name: goodput-web, mountPath: /etc/goodput-web, readOnly: true}
  {{- end }}
  {{- if eq $values.mode "sidecar" }}
  {{- if $values.sidecar.middleware.enabled }}
  - {name: goodput-run, mountPath: /run/goodput}
  {{- end }}
  {{- else if eq $values.mode "gateway" }}
  {{- if eq $values.gateway.kind "daemonset" }}
  - {name: pod-logs, mountPath: /var/log/pods, readOnly: true}
  {{- else if not $values.gateway.syslogPort }}
  - {name: goodput-logs, mountPath: {{ $values.gateway.logDirectory }}, readOnly: true}
  {{- end }}
  {{- end }}
{{- end -}}

{{- define "llm-goodput.env" -}}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
{{- end -}}

{{- define "llm-goodput.probe" -}}
{{- if .root.Values.web.configSecret -}}
tcpSocket: {port: goodput}
{{- else -}}
httpGet: {path: {{ .path }}, port: goodput}
{{- end -}}
{{- end -}}

{{- define "llm-goodput.securityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: {{ . }}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* The volumes of that container, less its state in a pod of ours. */ -}}
{{- define "llm-goodput.volumes" -}}
- name: goodput-config
  configMap: {name: {{ include "llm-goodput.fullname" . }}}
{{- if .Values.web.configSecret }}
- name: goodput-web
  secret: {secretName: {{ .Values.web.configSecret }}}
{{- end }}
{{- end -}}
