{{- /* A strategic merge patch that adds the sidecar to a Deployment or alike. */ -}}
{{- define "llm-goodput.patch" -}}
{{- $values := .Values -}}
{{- $native := eq (include "llm-goodput.native" .) "true" -}}
{{- $resources := ternary $values.sidecar.resources $values.gateway.resources (eq $values.mode "sidecar") -}}
{{- $container := include "llm-goodput.container" (dict "root" . "resources" $resources "group" 65532) -}}
{{- $theirs := include "llm-goodput.theirContainer" . -}}
spec:
  template:
    metadata:
      labels:
        {{- include "llm-goodput.podLabel" . | nindent 8 }}
    spec:
      {{- with $values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $native }}
      initContainers:
        - {{ $container | nindent 10 | trim }}
      {{- end }}
      {{- if not $native }}
      # A patch puts what is new first, and `kubectl logs` takes the first container.
      $setElementOrder/containers:
        - name: {{ ternary $values.engine.container $values.gateway.container (eq $values.mode "sidecar") }}
        - name: goodput
      {{- end }}
      {{- if or (not $native) $theirs }}
      containers:
        {{- with $theirs }}
        - {{ . | nindent 10 | trim }}
        {{- end }}
        {{- if not $native }}
        - {{ $container | nindent 10 | trim }}
        {{- end }}
      {{- end }}
      volumes:
        {{- include "llm-goodput.volumes" . | nindent 8 }}
        - name: goodput-state
          emptyDir: {sizeLimit: 64Mi}
        {{- if eq $values.mode "gateway" }}
        {{- if not $values.gateway.syslogPort }}
        - name: goodput-logs
          emptyDir: {}
        {{- end }}
        {{- else if $values.sidecar.middleware.enabled }}
        - name: goodput-run
          emptyDir: {sizeLimit: 1Mi}
        - name: goodput-middleware
          configMap: {name: {{ include "llm-goodput.fullname" . }}-middleware}
        {{- end }}
{{- end -}}

{{- /* What the patch adds to the container that is there already. */ -}}
{{- define "llm-goodput.theirContainer" -}}
{{- if eq .Values.mode "gateway" -}}
{{- if not .Values.gateway.syslogPort -}}
name: {{ .Values.gateway.container }}
volumeMounts:
  - {name: goodput-logs, mountPath: {{ .Values.gateway.logDirectory }}}
{{- end -}}
{{- else if .Values.sidecar.middleware.enabled -}}
name: {{ .Values.engine.container }}
env:
  - {name: PYTHONPATH, value: /opt/goodput-middleware}
volumeMounts:
  - {name: goodput-run, mountPath: /run/goodput}
  - {name: goodput-middleware, mountPath: /opt/goodput-middleware, readOnly: true}
{{- end -}}
{{- end -}}

{{- /* The patch that takes it all away again, but for --middleware. */ -}}
{{- define "llm-goodput.removal" -}}
{{- $patch := include "llm-goodput.patch" . | fromYaml -}}
{{- $pod := $patch.spec.template.spec -}}
{{- $theirs := include "llm-goodput.theirContainer" . | fromYaml -}}
spec:
  template:
    metadata:
      labels: {llm-goodput: null}
    spec:
      {{- if eq (include "llm-goodput.native" .) "true" }}
      initContainers:
        - {$patch: delete, name: goodput}
      {{- end }}
      {{- if $pod.containers }}
      containers:
        {{- range $container := $pod.containers }}
        {{- if eq $container.name "goodput" }}
        - {$patch: delete, name: goodput}
        {{- end }}
        {{- end }}
        {{- if $theirs }}
        - name: {{ $theirs.name }}
          {{- with $theirs.env }}
          env:
            {{- range . }}
            - {$patch: delete, name: {{ .name }}}
            {{- end }}
          {{- end }}
          volumeMounts:
            {{- range $theirs.volumeMounts }}
            - {$patch: delete, mountPath: {{ .mountPath }}}
            {{- end }}
        {{- end }}
      {{- end }}
      volumes:
        {{- range $pod.volumes }}
        - {$patch: delete, name: {{ .name }}}
        {{- end }}
{{- end -}}
