{{/* Environment of the server. */}}
{{- define "contextd.env" -}}
{{- if eq .Values.database.mode "embedded" -}}
- name: CONTEXTD_DATA_DIR
  value: /var/lib/contextd/data
{{- else -}}
- name: CONTEXTD_DATABASE_URL
  valueFrom:
    secretKeyRef: {{- include "contextd.databaseRef" . | nindent 6 }}
{{- end }}
{{- if .Values.auth.insecureNoAuth }}
- name: CONTEXTD_INSECURE_NO_AUTH
  value: "true"
{{- else }}
- name: CONTEXTD_AUTH_REQUIRED
  value: "true"
{{- end }}
{{- if .Values.auth.keysSecret }}
- name: CONTEXTD_KEYS_FILE
  value: /etc/contextd-keys/{{ .Values.auth.keysSecretKey }}
{{- end }}
{{- if include "contextd.tlsSecret" . }}
- name: CONTEXTD_TLS_CERT
  value: /etc/contextd-tls/tls.crt
- name: CONTEXTD_TLS_KEY
  value: /etc/contextd-tls/tls.key
{{- end }}
{{- if .Values.tls.clientCASecret }}
- name: CONTEXTD_TLS_CLIENT_CA
  value: /etc/contextd-client-ca/ca.crt
{{- end }}
{{- if .Values.tls.terminatedElsewhere }}
- name: CONTEXTD_TLS_TERMINATED_ELSEWHERE
  value: "true"
{{- end }}
{{- range .Values.secretEnv }}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "contextd.mounts" -}}
- {name: config, mountPath: /etc/contextd, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if eq .Values.database.mode "embedded" }}
- {name: data, mountPath: /var/lib/contextd}
{{- end }}
{{- if .Values.auth.keysSecret }}
- {name: keys, mountPath: /etc/contextd-keys, readOnly: true}
{{- end }}
{{- if include "contextd.tlsSecret" . }}
- {name: tls, mountPath: /etc/contextd-tls, readOnly: true}
{{- end }}
{{- if .Values.tls.clientCASecret }}
- {name: client-ca, mountPath: /etc/contextd-client-ca, readOnly: true}
{{- end }}
{{- range $index, $files := .Values.secretFiles }}
- {name: secret-files-{{ $index }}, mountPath: {{ $files.mountPath }}, readOnly: true}
{{- end }}
{{- range $index, $files := .Values.configMapFiles }}
- {name: config-files-{{ $index }}, mountPath: {{ $files.mountPath }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "contextd.volumes" -}}
- name: config
  configMap: {name: {{ include "contextd.fullname" . }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .Values.tmpSizeLimit }}}
{{- if eq .Values.database.mode "embedded" }}
- name: data
  persistentVolumeClaim: {claimName: {{ include "contextd.claim" . }}}
{{- end }}
{{- with .Values.auth.keysSecret }}
- name: keys
  secret: {secretName: {{ . }}}
{{- end }}
{{- with include "contextd.tlsSecret" . }}
- name: tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- with .Values.tls.clientCASecret }}
- name: client-ca
  secret: {secretName: {{ . }}}
{{- end }}
{{- range $index, $files := .Values.secretFiles }}
- name: secret-files-{{ $index }}
  secret:
    secretName: {{ $files.secret }}
    {{- with $files.items }}
    items: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
{{- range $index, $files := .Values.configMapFiles }}
- name: config-files-{{ $index }}
  configMap:
    name: {{ $files.configMap }}
    {{- with $files.items }}
    items: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "contextd.claim" -}}
{{- default (printf "%s-data" (include "contextd.fullname" .)) .Values.database.embedded.persistence.existingClaim -}}
{{- end -}}

{{/* The container that migrates, of the Job and of the pods. */}}
{{- define "contextd.migrateContainer" -}}
- name: migrate
  image: {{ include "contextd.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [migrate]
  env:
    - name: CONTEXTD_DATABASE_URL
      valueFrom:
        secretKeyRef: {{- include "contextd.migrationRef" . | nindent 10 }}
  {{- with .Values.migrations.resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- toYaml .Values.containerSecurityContext | nindent 4 }}
{{- end -}}
