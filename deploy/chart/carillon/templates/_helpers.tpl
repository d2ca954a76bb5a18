{{- define "carillon.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "carillon.selector" -}}
app.kubernetes.io/name: carillon
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "carillon.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "carillon.labels" -}}
{{ include "carillon.commonLabels" . }}
{{ include "carillon.selector" . }}
{{- end -}}

{{- define "carillon.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "carillon.replicas" -}}
{{- .Values.replicas | default (get (dict "single" 1 "cluster" 3 "postgres" 2) .Values.mode) | int -}}
{{- end -}}

{{- define "carillon.secret" -}}
{{- .Values.secrets.existingSecret | default (include "carillon.fullname" .) -}}
{{- end -}}

{{- define "carillon.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{ include "carillon.fullname" . }}-tls
{{- else -}}
{{ .Values.tls.existingSecret }}
{{- end -}}
{{- end -}}

{{- define "carillon.listen" -}}
{{- if contains ":" .Values.listenAddress -}}
[{{ .Values.listenAddress }}]
{{- else -}}
{{ .Values.listenAddress }}
{{- end -}}
{{- end -}}

{{- /* Names under which clients in the cluster reach the server. */ -}}
{{- define "carillon.serviceNames" -}}
{{- $name := include "carillon.fullname" . -}}
{{- $ns := .Release.Namespace -}}
{{- list $name (printf "%s.%s" $name $ns) (printf "%s.%s.svc" $name $ns) (printf "%s.%s.svc.cluster.local" $name $ns) | join "," -}}
{{- end -}}

{{- define "carillon.peers" -}}
{{- $name := include "carillon.fullname" . -}}
{{- $peers := list -}}
{{- range $i := until (include "carillon.replicas" . | int) -}}
{{- $peers = append $peers (printf "%s-%d.%s-nodes:7946" $name $i $name) -}}
{{- end -}}
{{- $peers | join "," -}}
{{- end -}}

{{- define "carillon.url" -}}
{{- if .Values.url -}}
{{ .Values.url }}
{{- else if .Values.ingress.enabled -}}
https://{{ .Values.ingress.host }}
{{- end -}}
{{- end -}}

{{- /* carillon.yaml: the settings of the chart, and those of the user. */ -}}
{{- define "carillon.config" -}}
{{- $listen := include "carillon.listen" . -}}
{{- $http := dict "addr" (printf "%s:8080" $listen) "hosts" (prepend .Values.hosts (include "carillon.serviceNames" .) | join ",") -}}
{{- $nats := dict -}}
{{- with include "carillon.url" . }}{{ $_ := set $http "url" . }}{{ end -}}
{{- if .Values.tls.plain -}}
{{- $_ := set $http "plain" true -}}
{{- else -}}
{{- $_ := merge $http (dict "tls-cert" "/etc/carillon/tls/tls.crt" "tls-key" "/etc/carillon/tls/tls.key") -}}
{{- end -}}
{{- with .Values.nats -}}
{{- if .url -}}
{{- $_ := set $nats "url" .url -}}
{{- if .plain }}{{ $_ := set $nats "plain" true }}{{ end -}}
{{- if .user }}{{ $_ := merge $nats (dict "user" .user "password-file" (printf "/etc/carillon/nats/%s" .passwordKey)) }}{{ end -}}
{{- if .tokenKey }}{{ $_ := set $nats "token-file" (printf "/etc/carillon/nats/%s" .tokenKey) }}{{ end -}}
{{- if .credsKey }}{{ $_ := set $nats "creds-file" (printf "/etc/carillon/nats/%s" .credsKey) }}{{ end -}}
{{- if .caKey }}{{ $_ := set $nats "tls-ca" (printf "/etc/carillon/nats/%s" .caKey) }}{{ end -}}
{{- else -}}
{{- $_ := set $nats "addr" (printf "%s:4222" $listen) -}}
{{- if $.Values.tls.plain -}}
{{- $_ := set $nats "plain" true -}}
{{- else -}}
{{- $_ := merge $nats (dict "tls-cert" "/etc/carillon/tls/tls.crt" "tls-key" "/etc/carillon/tls/tls.key") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $shutdown := dict "grace" (printf "%ds" (int .Values.shutdownGraceSeconds)) -}}
{{- $c := dict "http" $http "nats" $nats "data" "/data/carillon" "shutdown" $shutdown -}}
{{- $_ := set $c "admin-token-file" "/etc/carillon/secret/admin-token" -}}
{{- if eq .Values.mode "cluster" -}}
{{- $_ := set $c "cluster" (dict "addr" (printf "%s:7946" $listen) "peers" (include "carillon.peers" .) "secret-file" "/etc/carillon/secret/cluster-secret") -}}
{{- end -}}
{{- if eq .Values.mode "postgres" -}}
{{- $store := dict -}}
{{- with .Values.database -}}
{{- if .url }}{{ $_ := set $store "url" .url }}{{ end -}}
{{- if .passwordKey }}{{ $_ := set $store "password-file" (printf "/etc/carillon/database/%s" .passwordKey) }}{{ end -}}
{{- end -}}
{{- with $store }}{{ $_ := set $c "store" . }}{{ end -}}
{{- end -}}
{{- if .Values.jobs }}{{ $_ := set $c "jobs" (dict "from" "/etc/carillon/jobs") }}{{ end -}}
{{- mergeOverwrite (deepCopy .Values.config) $c | toYaml -}}
{{- end -}}
