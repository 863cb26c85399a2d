{{- define "uview.fullname" -}}
{{- if contains "uview" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-uview{{ end -}}
{{- end }}

{{- define "uview.labels" -}}
app.kubernetes.io/name: uview
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "uview.selector" -}}
app.kubernetes.io/name: uview
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "uview.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "uview.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "uview.fullname" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end -}}
{{- end }}

{{/* The secret with the certificate of an agent: a given one, or the one that cert-manager writes. */}}
{{- define "uview.tlsSecret" -}}
{{- if .of.secretName }}{{ .of.secretName }}
{{- else if .of.issuer.name }}{{ include "uview.fullname" .root }}-{{ .name }}-tls
{{- else }}{{ fail (printf "%s.secretName: a secret with tls.crt, tls.key and ca.crt; or %s.issuer.name: cert-manager writes one" .key .key) }}
{{- end }}
{{- end }}

{{/* The name that stands for the addresses of all host agents. Each one's certificate has it. */}}
{{- define "uview.peersHost" -}}
{{ include "uview.fullname" . }}-peers.{{ .Release.Namespace }}.svc
{{- end }}

{{/* A certificate of cert-manager: its secret is renewed in time, and the agents take it over without a restart. */}}
{{- define "uview.certificate" -}}
{{- $issuer := .of.issuer -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ include "uview.fullname" .root }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "uview.labels" .root | nindent 4 }}
spec:
  secretName: {{ include "uview.tlsSecret" . }}
  issuerRef: {name: {{ $issuer.name }}, kind: {{ $issuer.kind }}}
  {{- with $issuer.dnsNames }}
  dnsNames: {{ toJson . }}
  {{- end }}
  {{- with .uris }}
  uris: {{ toJson . }}
  {{- end }}
  usages: {{ toJson .usages }}
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
{{- end }}

{{/* The class of the agents' pods: the chart's own, the one that is named, or none. An earlier release has no such values. */}}
{{- define "uview.priorityClass" -}}
{{- if (.Values.priorityClass | default dict).create }}{{ include "uview.fullname" . }}{{ else }}{{ .Values.priorityClassName }}{{ end -}}
{{- end }}

{{/* What all pods have in common. */}}
{{- define "uview.pod" -}}
serviceAccountName: {{ include "uview.serviceAccount" . }}
enableServiceLinks: false
terminationGracePeriodSeconds: 30
{{- with include "uview.priorityClass" . }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Root without capabilities, but for those named: capabilities that are added to another user's process are lost. */}}
{{- define "uview.securityContext" -}}
runAsUser: 0
runAsGroup: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
seccompProfile: {{ .seccomp | default (dict "type" "RuntimeDefault") | toJson }}
capabilities:
  drop: [ALL]
  {{- with .add }}
  add: {{ toJson . }}
  {{- end }}
{{- end }}

{{- define "uview.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
{{- end }}

{{/*
What becomes of OTLP: "forward", "watch", or nothing. An upstream in hostAgent.config has no ports. Without an upstream it
takes a word (hostPort) where the agent does not know whose pod an address is, which could say any name, and on the node's
own network, where the port may be a Collector's.
*/}}
{{- define "uview.otlp" -}}
{{- $own := (.Values.hostAgent.config.otlp | default dict).upstream }}
{{- if .Values.otlp.upstream }}forward
{{- else if and .Values.otlp.watchOnly (not $own) (or .Values.otlp.hostPort (and .Values.pods.enabled (not .Values.hostAgent.dpu.enabled))) }}watch
{{- end }}
{{- end }}

{{/* Whether the node's own address has the ports. */}}
{{- define "uview.otlpHostPort" -}}
{{- if kindIs "bool" .Values.otlp.hostPort }}{{ if .Values.otlp.hostPort }}true{{ end }}
{{- else if .Values.otlp.upstream }}true
{{- end }}
{{- end }}

{{/* Whether a Service may lead to the agent of the sender's own node: before Kubernetes 1.22 it would be any node's. */}}
{{- define "uview.otlpService" -}}
{{- if semverCompare ">=1.22-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{/* What a workload's container needs to send its OTLP to the agent of its node. */}}
{{- define "uview.otlpVariable" }}
{{- if include "uview.otlpHostPort" . }}
{{- "    env:" }}
      - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
      - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://$(HOST_IP):4317"}
{{- else if include "uview.otlpService" . }}
{{- "    env:" }}
      - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://{{ include "uview.fullname" . }}-otlp.{{ .Release.Namespace }}:4317"}
{{- else }}
{{- "    --set otlp.hostPort=true: before Kubernetes 1.22 no Service leads to the agent of the sender's own node" }}
{{- end }}
{{- end }}

{{/* The host agent's configuration, with what the values add. */}}
{{- define "uview.hostConfig" -}}
{{- $config := dict
  "runtime_dir" .Values.hostAgent.socketDir
  "metrics" (dict "listen" "0.0.0.0:9702")
  "receipt" (dict "dir" .Values.hostAgent.stateDir)
  "incidents" (dict "dir" (printf "%s/incidents" .Values.hostAgent.stateDir) "profile" (dict "seconds" (ternary 5 0 .Values.hostAgent.profiles.enabled)))
  "lmap" (dict "models_dir" (printf "%s/models" .Values.hostAgent.stateDir) "model_bytes" 33554432)
  "services" (dict "limits" (dict "connections" 512 "services" 512 "series" 65536 "regions" 8192 "region_bytes" 268435456))
  "operators" (dict "hooks" 64)
  "transport" (ternary "auto" "shm" .Values.hostAgent.dpu.enabled)
  "log" (dict "format" "json")
}}
{{- $mode := include "uview.otlp" . }}
{{- if $mode }}
{{- $traces := dict "keep" .Values.otlp.keep "memory_bytes" 134217728 }}
{{- /* A log record that is neither kept nor passed on would be looked at by nobody. */}}
{{- $logs := ternary "tail" .Values.otlp.logs (and (eq $mode "watch") (eq .Values.otlp.keep "tail")) }}
{{- with .Values.hostAgent.peers }}
{{- if .enabled }}{{ $_ := set $traces "order_key" .orderKey }}{{ end }}
{{- end }}
{{- $otlp := dict "listen_grpc" "0.0.0.0:4317" "listen_http" "0.0.0.0:4318" "receive_memory_bytes" 33554432 "queue_bytes" 33554432 "traces" $traces "logs" (dict "keep" $logs "memory_bytes" 33554432) }}
{{- if eq $mode "forward" }}{{ $_ := set $otlp "upstream" .Values.otlp.upstream }}{{ else }}{{ $_ := set $otlp "watch_only" true }}{{ end }}
{{- $_ := set $config "otlp" $otlp }}
{{- end }}
{{- if .Values.pods.enabled }}
{{- $pods := dict "pods" true "scrape_targets" .Values.pods.scrapeTargets "pod_monitors" .Values.pods.podMonitors "lmaps" .Values.pods.lmaps "sampling_policies" .Values.pods.samplingPolicies "synopsis_policies" .Values.pods.synopsisPolicies "forwarders" .Values.pods.forwarders }}
{{- $_ := set $config "kubernetes" $pods }}
{{- end }}
{{- with .Values.hostAgent.operatorsApi }}
{{- if .enabled }}
{{- $tls := dict "certificate" "/etc/uview-operators-tls/tls.crt" "key" "/etc/uview-operators-tls/tls.key" }}
{{- $_ := set $config "operators" (dict "hooks" 64 "listen" (printf "0.0.0.0:%v" .port) "tls" $tls) }}
{{- $kubernetes := merge (dict "tokens" true "audience" .audience) (get $config "kubernetes" | default dict) }}
{{- $_ := set $config "kubernetes" $kubernetes }}
{{- end }}
{{- end }}
{{- with .Values.hostAgent.peers }}
{{- if .enabled }}
{{- if not $mode }}{{ fail "hostAgent.peers needs otlp.upstream or otlp.watchOnly: where OTLP is off agents see no spans, and gossip with nobody" }}{{ end }}
{{- if not .orderKey }}{{ fail "hostAgent.peers.orderKey: 32 hexadecimal digits, the same on all nodes: openssl rand -hex 16" }}{{ end }}
{{- if eq (empty .issuer.name) (empty .nodeDir) }}{{ fail "hostAgent.peers: either issuer.name, from which the CSI driver of cert-manager gets certificates, or nodeDir, where each node has its own" }}{{ end }}
{{- $own := dict "certificate" "/etc/uview-peers-tls/tls.crt" "key" "/etc/uview-peers-tls/tls.key" }}
{{- $listener := merge (dict "client_ca" "/etc/uview-peers-tls/ca.crt") $own }}
{{- $caller := merge (dict "ca" "/etc/uview-peers-tls/ca.crt") $own }}
{{- $all := printf "%s:%v" (include "uview.peersHost" $) .port }}
{{- $_ := set $config "coherence" (dict "listen" (printf "0.0.0.0:%v" .port) "peers" (list $all) "tls" $listener "peers_tls" $caller) }}
{{- end }}
{{- end }}
{{- if .Values.hostAgent.dpu.enabled }}
{{- $tls := dict "certificate" "/etc/uview-tls/tls.crt" "key" "/etc/uview-tls/tls.key" "client_ca" "/etc/uview-tls/ca.crt" }}
{{- $_ := set $config "control" (dict "listen" (printf "0.0.0.0:%v" .Values.hostAgent.dpu.port) "tls" $tls) }}
{{- $_ := set $config "access" (dict "workers" (dict "certificates" .Values.hostAgent.dpu.certificates)) }}
{{- end }}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.hostAgent.config)) }}
{{- end }}

{{/* The NIC agent's configuration. */}}
{{- define "uview.nicConfig" -}}
{{- $limits := dict "regions" 8192 "region_bytes" 268435456 "retained_detector_bytes" 268435456 "retained_models" 128 "retained_model_bytes" 67108864 }}
{{- $socket := printf "unix:%s/control.sock" .root.Values.hostAgent.socketDir }}
{{- $config := dict
  "worker" .worker
  "transport" "shm"
  "control" (dict "address" $socket)
  "regions_socket" (printf "%s/regions.sock" .root.Values.hostAgent.socketDir)
  "metrics" (dict "listen" (printf "%s:%d" .address (int .port)))
  "limits" $limits
  "log" (dict "format" "json")
}}
{{- with .network }}
{{- $_ := set $config "network" . }}
{{- end }}
{{- toYaml (mergeOverwrite $config (deepCopy .config)) }}
{{- end }}
