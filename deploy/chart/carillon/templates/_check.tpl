{{- /* Refuse values that the server refuses, or that lose data. values.schema.json refuses unknown keys and wrong
types. */ -}}
{{- define "carillon.check" -}}
{{- $n := include "carillon.replicas" . | int -}}
{{- with .Values -}}
{{- if and (eq .mode "single") (ne $n 1) -}}
{{- fail (printf "replicas is %d, but mode single has one pod: set mode to cluster or postgres" $n) -}}
{{- end -}}
{{- if and (eq .mode "cluster") (or (lt $n 3) (eq (mod $n 2) 0)) -}}
{{- fail (printf "replicas is %d, but a cluster needs an odd number, at least 3: two nodes survive no loss, four no more than three" $n) -}}
{{- end -}}
{{- $certificates := 0 -}}
{{- if .tls.plain }}{{ $certificates = add1 $certificates }}{{ end -}}
{{- if .tls.existingSecret }}{{ $certificates = add1 $certificates }}{{ end -}}
{{- if .tls.certManager.enabled }}{{ $certificates = add1 $certificates }}{{ end -}}
{{- if eq (int $certificates) 0 -}}
{{- fail "no TLS: set tls.existingSecret or tls.certManager.enabled, or tls.plain=true if you trust everyone on the pods' network" -}}
{{- end -}}
{{- if gt (int $certificates) 1 -}}
{{- fail "more than one of tls.plain, tls.existingSecret and tls.certManager.enabled is set: keep one" -}}
{{- end -}}
{{- if and .tls.caKey .tls.plain }}{{ fail "tls.caKey is set, but tls.plain means no TLS: remove one" }}{{ end -}}
{{- if and .tls.certManager.enabled (not (get .tls.certManager.issuerRef "name")) -}}
{{- fail "tls.certManager.enabled needs tls.certManager.issuerRef: set its name and kind" -}}
{{- end -}}
{{- if eq .mode "postgres" -}}
{{- if and .database.url .database.urlKey }}{{ fail "both database.url and database.urlKey are set: remove one" }}{{ end -}}
{{- if not (or .database.url .database.urlKey) -}}
{{- fail "mode postgres needs database.url, such as postgres://carillon@db/carillon, or database.urlKey" -}}
{{- end -}}
{{- if regexMatch "^[^/]*//[^/@]*:[^/]*@|[?&]password=" .database.url -}}
{{- fail "database.url has a password: put it into a Secret and set database.existingSecret" -}}
{{- end -}}
{{- if and (or .database.urlKey .database.passwordKey) (not .database.existingSecret) -}}
{{- fail "database.existingSecret is not set: name the Secret with the database's password, or set database.passwordKey to \"\" if it needs none" -}}
{{- end -}}
{{- else if or .database.url .database.existingSecret -}}
{{- fail (printf "database is set, but mode is %s: set mode to postgres, or remove database" .mode) -}}
{{- end -}}
{{- if .nats.url -}}
{{- if regexMatch "//[^/]*@" .nats.url -}}
{{- fail "nats.url has a user or a token before the @: set nats.user and nats.passwordKey, or nats.tokenKey, and nats.existingSecret" -}}
{{- end -}}
{{- if and (not (hasPrefix "tls://" .nats.url)) (not .nats.plain) -}}
{{- fail (printf "nats.url %s has no TLS: use tls://, or set nats.plain=true if you trust everyone on that network" .nats.url) -}}
{{- end -}}
{{- if ne (empty .nats.user) (empty .nats.passwordKey) -}}
{{- fail "nats.user and nats.passwordKey belong together: set both or neither" -}}
{{- end -}}
{{- if gt (len (compact (list .nats.user .nats.tokenKey .nats.credsKey))) 1 -}}
{{- fail "more than one of nats.user, nats.tokenKey and nats.credsKey is set: keep one" -}}
{{- end -}}
{{- if and (or .nats.passwordKey .nats.tokenKey .nats.credsKey .nats.caKey) (not .nats.existingSecret) -}}
{{- fail "nats.existingSecret is not set: name the Secret that has the keys of nats.passwordKey, nats.tokenKey, nats.credsKey and nats.caKey" -}}
{{- end -}}
{{- else if or .nats.existingSecret .nats.user .nats.plain -}}
{{- fail "nats is for an external NATS server, but nats.url is not set" -}}
{{- end -}}
{{- if and .ingress.enabled (not .ingress.host) }}{{ fail "ingress.enabled needs ingress.host" }}{{ end -}}
{{- if and .secrets.existingSecret (or .secrets.adminToken .secrets.clusterSecret) -}}
{{- fail "secrets.adminToken and secrets.clusterSecret are for the generated Secret, but secrets.existingSecret is set: remove one" -}}
{{- end -}}
{{- if and .secrets.clusterSecret (lt (len .secrets.clusterSecret) 32) -}}
{{- fail (printf "secrets.clusterSecret has %d characters: want at least 32" (len .secrets.clusterSecret)) -}}
{{- end -}}
{{- if and .secrets.adminToken (not (regexMatch "^carillon_default_[a-z0-9]{8}_[A-Za-z0-9]{26,}$" .secrets.adminToken)) -}}
{{- fail "secrets.adminToken is no token: want carillon_default_, 8 characters of a-z 0-9, _ and at least 26 letters or digits" -}}
{{- end -}}
{{- range $key := list "http" "nats" "cluster" "store" "data" "node" "memory" "auth" "admin-token-file" -}}
{{- if hasKey $.Values.config $key }}{{ fail (printf "config.%s is set by the chart: use the chart's own values" $key) }}{{ end -}}
{{- end -}}
{{- if hasKey (get .config "shutdown" | default dict) "grace" }}{{ fail "config.shutdown.grace is set by the chart: use shutdownGraceSeconds" }}{{ end -}}
{{- if and .jobs (hasKey .config "jobs") }}{{ fail "both jobs and config.jobs are set: remove one" }}{{ end -}}
{{- if and .metrics.serviceMonitor.enabled (not (get .metrics.serviceMonitor.tokenSecret "name")) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.serviceMonitor.tokenSecret: make a token (carillon tokens create prometheus --role viewer) and a Secret of it, and set name and key" -}}
{{- end -}}
{{- if and .metrics.dashboard.enabled (not ($.Files.Get "files/carillon.json")) -}}
{{- fail "metrics.dashboard.enabled: this chart holds no dashboard" -}}
{{- end -}}
{{- $names := list -}}
{{- range .workers -}}
{{- if has .name $names }}{{ fail (printf "two workers have the name %s" .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- if and (not $.Values.nats.url) (not .tokenSecret) -}}
{{- fail (printf "worker %s needs tokenSecret: make a token (carillon tokens create %s --role worker --app %s) and a Secret of it, and set name and key" .name .name .app) -}}
{{- end -}}
{{- if and $.Values.nats.url .tokenSecret -}}
{{- fail (printf "worker %s has a tokenSecret, but users of the external NATS server replace tokens: give its login by env" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
