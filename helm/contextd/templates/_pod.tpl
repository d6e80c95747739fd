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
{{- if include "contextd.databaseCASecret" . }}
{{ include "contextd.databaseCAMount" . }}
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

{{- define "contextd.databaseCAMount" -}}
- {name: database-ca, mountPath: /etc/contextd-database-ca, readOnly: true}
{{- end -}}

{{/* CloudNativePG stores the private key of the certificate authority in the same Secret, so only the certificate is mounted. */}}
{{- define "contextd.databaseCAVolume" -}}
- name: database-ca
  secret:
    secretName: {{ include "contextd.databaseCASecret" . }}
    items: [{key: ca.crt, path: ca.crt}]
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
{{- if include "contextd.databaseCASecret" . }}
{{ include "contextd.databaseCAVolume" . }}
{{- end }}
{{- range $index, $files := .Values.secretFiles }}
{{ include "contextd.secretFilesVolume" (list $index $files) }}
{{- end }}
{{- range $index, $files := .Values.configMapFiles }}
{{ include "contextd.configMapFilesVolume" (list $index $files) }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "contextd.secretFilesVolume" -}}
{{- $files := index . 1 -}}
- name: secret-files-{{ index . 0 }}
  secret:
    secretName: {{ $files.secret }}
    {{- with $files.items }}
    items: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end -}}

{{- define "contextd.configMapFilesVolume" -}}
{{- $files := index . 1 -}}
- name: config-files-{{ index . 0 }}
  configMap:
    name: {{ $files.configMap }}
    {{- with $files.items }}
    items: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end -}}

{{- define "contextd.claim" -}}
{{- default (printf "%s-data" (include "contextd.fullname" .)) .Values.database.embedded.persistence.existingClaim -}}
{{- end -}}

{{/* The container that runs the migration, in the Job and in the Pods. */}}
{{- define "contextd.migrateContainer" -}}
- name: migrate
  image: {{ include "contextd.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [migrate, --config=/etc/contextd/migrate.toml]
  env:
    - name: CONTEXTD_DATABASE_URL
      valueFrom:
        secretKeyRef: {{- include "contextd.migrationRef" . | nindent 10 }}
  {{- with .Values.migrations.resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- toYaml .Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    {{- range include "contextd.migrateFiles" . | fromJsonArray }}
    - {{ toJson .mount }}
    {{- end }}
{{- end -}}

{{/* The volume that only this container has. */}}
{{- define "contextd.migrateConfigVolume" -}}
- name: migrate-config
  configMap: {name: {{ include "contextd.migrateConfigName" . }}}
{{- end -}}

{{/* The ConfigMap of a hook has a separate name, because Helm does not adopt the object of a hook when the mode changes. */}}
{{- define "contextd.migrateConfigName" -}}
{{- include "contextd.fullname" . }}-migrate{{ ternary "-hook" "" (eq .Values.migrations.mode "hook") }}
{{- end -}}

{{- define "contextd.migrateVolumes" -}}
{{- range include "contextd.migrateFiles" . | fromJsonArray }}
{{ .volume }}
{{- end }}
{{- end -}}

{{/*
What the migration mounts, as a list of mounts, each with its volume as YAML: its configuration and, of the mounted files of the server, those
that contain config.database.ca_file.
*/}}
{{- define "contextd.migrateFiles" -}}
{{- $files := list (dict "volume" (include "contextd.migrateConfigVolume" .) "mount" (dict "name" "migrate-config" "mountPath" "/etc/contextd" "readOnly" true)) -}}
{{- if include "contextd.databaseCASecret" . -}}
{{- $files = append $files (dict "volume" (include "contextd.databaseCAVolume" .) "mount" (include "contextd.databaseCAMount" . | fromYamlArray | first)) -}}
{{- end -}}
{{- $authority := default "" (index (.Values.config.database | default dict) "ca_file") -}}
{{- range $index, $item := .Values.secretFiles -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" $item.mountPath)) $authority -}}
{{- $mount := dict "name" (printf "secret-files-%d" $index) "mountPath" $item.mountPath "readOnly" true -}}
{{- $files = append $files (dict "volume" (include "contextd.secretFilesVolume" (list $index $item)) "mount" $mount) -}}
{{- end -}}
{{- end -}}
{{- range $index, $item := .Values.configMapFiles -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" $item.mountPath)) $authority -}}
{{- $mount := dict "name" (printf "config-files-%d" $index) "mountPath" $item.mountPath "readOnly" true -}}
{{- $files = append $files (dict "volume" (include "contextd.configMapFilesVolume" (list $index $item)) "mount" $mount) -}}
{{- end -}}
{{- end -}}
{{- range $mount := .Values.extraVolumeMounts -}}
{{- if or (eq $mount.mountPath $authority) (hasPrefix (printf "%s/" (trimSuffix "/" $mount.mountPath)) $authority) -}}
{{- range $volume := $.Values.extraVolumes -}}
{{- if eq $volume.name $mount.name -}}
{{- $files = append $files (dict "volume" (list $volume | toYaml) "mount" $mount) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}
