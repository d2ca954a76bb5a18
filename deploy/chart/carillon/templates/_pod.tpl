{{- define "carillon.pod" -}}
metadata:
  labels:
    {{- include "carillon.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "carillon.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ .Values.serviceAccountName }}
  automountServiceAccountToken: false
  # Variables of other Services would look like settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add .Values.shutdownGraceSeconds .Values.preStopSeconds 25 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- include "carillon.podSecurity" . | nindent 2 }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: {{ .Values.spread }}
      labelSelector:
        matchLabels:
          {{- include "carillon.selector" . | nindent 10 }}
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "carillon.selector" . | nindent 10 }}
  containers:
    - name: carillon
      image: {{ include "carillon.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - server
        {{- range .Values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: CARILLON_CONFIG
          value: /etc/carillon/config/carillon.yaml
        - name: CARILLON_NODE
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- if eq .Values.mode "cluster" }}
        - name: CARILLON_CLUSTER_ADVERTISE
          value: $(CARILLON_NODE).{{ include "carillon.fullname" . }}-nodes
        {{- end }}
        {{- if and (eq .Values.mode "postgres") .Values.database.urlKey }}
        - name: CARILLON_STORE_URL
          valueFrom:
            secretKeyRef:
              name: {{ .Values.database.existingSecret }}
              key: {{ .Values.database.urlKey }}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: 8080
        {{- if not .Values.nats.url }}
        - name: bus
          containerPort: 4222
        {{- end }}
        {{- if eq .Values.mode "cluster" }}
        - name: nodes
          containerPort: 7946
        {{- if not .Values.nats.url }}
        - name: routes
          containerPort: 7947
        {{- end }}
        {{- end }}
      {{- $scheme := ternary "HTTP" "HTTPS" .Values.tls.plain }}
      startupProbe:
        httpGet: {path: /livez, port: http, scheme: {{ $scheme }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ div (add .Values.startupSeconds 4) 5 }}
      livenessProbe:
        httpGet: {path: /livez, port: http, scheme: {{ $scheme }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- if and .Values.preStopSeconds (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ .Values.preStopSeconds }}}
      {{- end }}
      {{- include "carillon.containerSecurity" . | nindent 6 }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: config, mountPath: /etc/carillon/config, readOnly: true}
        - {name: secret, mountPath: /etc/carillon/secret, readOnly: true}
        {{- if .Values.jobs }}
        - {name: jobs, mountPath: /etc/carillon/jobs, readOnly: true}
        {{- end }}
        {{- if not .Values.tls.plain }}
        - {name: tls, mountPath: /etc/carillon/tls, readOnly: true}
        {{- end }}
        {{- if and (eq .Values.mode "postgres") .Values.database.passwordKey }}
        - {name: database, mountPath: /etc/carillon/database, readOnly: true}
        {{- end }}
        {{- if .Values.nats.existingSecret }}
        - {name: nats, mountPath: /etc/carillon/nats, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- if eq .Values.mode "postgres" }}
    - name: data
      emptyDir: {}
    {{- end }}
    - name: config
      configMap:
        name: {{ include "carillon.fullname" . }}
        items:
          - {key: carillon.yaml, path: carillon.yaml}
    - name: secret
      secret:
        secretName: {{ include "carillon.secret" . }}
        defaultMode: 0440
        items:
          - {key: admin-token, path: admin-token}
          {{- if eq .Values.mode "cluster" }}
          - {key: cluster-secret, path: cluster-secret}
          {{- end }}
    {{- if .Values.jobs }}
    - name: jobs
      configMap:
        name: {{ include "carillon.fullname" . }}-jobs
    {{- end }}
    {{- if not .Values.tls.plain }}
    - name: tls
      secret:
        secretName: {{ include "carillon.tlsSecret" . }}
        defaultMode: 0440
        items:
          - {key: tls.crt, path: tls.crt}
          - {key: tls.key, path: tls.key}
    {{- end }}
    {{- if and (eq .Values.mode "postgres") .Values.database.passwordKey }}
    - name: database
      secret:
        secretName: {{ .Values.database.existingSecret }}
        defaultMode: 0440
        items:
          - {key: {{ .Values.database.passwordKey }}, path: {{ .Values.database.passwordKey }}}
    {{- end }}
    {{- with .Values.nats.existingSecret }}
    - name: nats
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- /* With OnRootMismatch, Kubernetes sets modes on a new disk only. Otherwise, each start would open the node's key
to its group, and the server would refuse it. */ -}}
{{- define "carillon.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "carillon.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}
