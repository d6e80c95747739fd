{{- define "contextd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for the suffixes that are appended to it. */}}
{{- define "contextd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- else if contains (include "contextd.name" .) .Release.Name -}}
{{- .Release.Name | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "contextd.name" .) | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "contextd.selector" -}}
app.kubernetes.io/name: {{ include "contextd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The selector in the form that kubectl expects. */}}
{{- define "contextd.podSelector" -}}
app.kubernetes.io/name={{ include "contextd.name" . }},app.kubernetes.io/instance={{ .Release.Name }}
{{- end -}}

{{- define "contextd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "contextd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of the Pods of Jobs and tests, which no Service selects. Argument: (list $ "migrate"). */}}
{{- define "contextd.sideLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "contextd.name" $root }}-{{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- end -}}

{{- define "contextd.image" -}}
{{- $repository := .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else if .Values.image.tag -}}
{{- printf "%s:%s" $repository .Values.image.tag -}}
{{- else -}}
{{- printf "%s:%s%s" $repository .Chart.AppVersion (ternary "-embedded" "" (eq .Values.database.mode "embedded")) -}}
{{- end -}}
{{- end -}}

{{- define "contextd.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "contextd.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Maximum number of replicas. */}}
{{- define "contextd.replicas" -}}
{{- ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled -}}
{{- end -}}

{{/* Minimum number of replicas. */}}
{{- define "contextd.minReplicas" -}}
{{- ternary .Values.autoscaling.minReplicas .Values.replicaCount .Values.autoscaling.enabled -}}
{{- end -}}

{{/*
The replicas of the Deployment. With an autoscaler this is the current number, within minReplicas and maxReplicas: if the field is removed from
a Deployment that had it, the number drops to 1 until the next run of the autoscaler. Empty if there is no Deployment yet, or if Helm has no
access to the cluster.
*/}}
{{- define "contextd.deployedReplicas" -}}
{{- if not .Values.autoscaling.enabled -}}
{{- .Values.replicaCount -}}
{{- else -}}
{{- $deployed := lookup "apps/v1" "Deployment" .Release.Namespace (include "contextd.fullname" .) -}}
{{- with dig "spec" "replicas" 0 ($deployed | default dict) | int -}}
{{- min (max . (int $.Values.autoscaling.minReplicas)) (int $.Values.autoscaling.maxReplicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The time that the program has after SIGTERM, in seconds. Only computed here. */}}
{{- define "contextd.gracePeriod" -}}
{{- add .Values.drain.delay .Values.drain.timeout .Values.drain.reserve -}}
{{- end -}}

{{- define "contextd.cnpgCluster" -}}
{{- default (printf "%s-db" (include "contextd.fullname" .)) .Values.database.cloudnativepg.cluster -}}
{{- end -}}

{{/* The Secret and key of the database URL of the server, as the YAML of a secretKeyRef. */}}
{{- define "contextd.databaseRef" -}}
{{- if eq .Values.database.mode "cloudnativepg" -}}
name: {{ include "contextd.cnpgCluster" . }}-app
key: uri
{{- else -}}
name: {{ required "database.existingSecret is required: set it to a Secret that contains the URL of a PostgreSQL database in the key database.urlKey. Create one with: kubectl create secret generic contextd-database --from-literal=url=postgres://..., or choose another database.mode." .Values.database.existingSecret }}
key: {{ .Values.database.urlKey }}
{{- end -}}
{{- end -}}

{{/* The same for the role that runs the migration. */}}
{{- define "contextd.migrationRef" -}}
{{- if .Values.migrations.existingSecret -}}
name: {{ .Values.migrations.existingSecret }}
key: {{ .Values.migrations.urlKey }}
{{- else -}}
{{ include "contextd.databaseRef" . }}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate authority of the database. Empty if config.database.ca_file or the authorities of the system are used. */}}
{{- define "contextd.databaseCASecret" -}}
{{- $file := index (.Values.config.database | default dict) "ca_file" -}}
{{- if and (ne .Values.database.mode "embedded") (not $file) -}}
{{- default (ternary (printf "%s-ca" (include "contextd.cnpgCluster" .)) "" (eq .Values.database.mode "cloudnativepg")) .Values.database.caSecret -}}
{{- end -}}
{{- end -}}

{{/* The Secret of the server certificate. Empty without TLS in the Pods. */}}
{{- define "contextd.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{- printf "%s-tls" (include "contextd.fullname" .) -}}
{{- else -}}
{{- .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate authority of the server, for the test and the notes. Empty if the authorities of the system are used. */}}
{{- define "contextd.testCASecret" -}}
{{- if include "contextd.tlsSecret" . -}}
{{- default (ternary (include "contextd.tlsSecret" .) "" .Values.tls.certManager.enabled) .Values.test.caSecret -}}
{{- end -}}
{{- end -}}

{{/* Not empty if clients need a certificate to connect. The test has none, so it uses the admin port instead. */}}
{{- define "contextd.clientCertRequired" -}}
{{- if index (.Values.config.tls | default dict) "client_cert_required" -}}true{{- end -}}
{{- end -}}

{{/* Converts the whole numbers of a map to integers, in place: Helm reads every number of a values file as a float, and 400.0 is not a valid count. */}}
{{- define "contextd.integers" -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- include "contextd.integers" $value -}}
{{- else if kindIs "slice" $value -}}
{{- $items := list -}}
{{- range $item := $value -}}
{{- if kindIs "map" $item -}}{{- include "contextd.integers" $item -}}{{- end -}}
{{- $whole := and (kindIs "float64" $item) (eq (toString (floor $item)) (toString $item)) -}}
{{- $items = append $items (ternary (int64 $item) $item $whole) -}}
{{- end -}}
{{- $_ := set $ $key $items -}}
{{- else if kindIs "float64" $value -}}
{{- if eq (floor $value) $value -}}{{- $_ := set $ $key (int64 $value) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The configuration file: the keys of the values, and those that the chart sets. */}}
{{- define "contextd.config" -}}
{{- $config := include "contextd.settings" . | fromJson -}}
{{- include "contextd.integers" $config -}}
{{- toToml $config -}}
{{- end -}}

{{/* The part of it that a migration needs. The rest would be rejected without the server's certificate and keys. */}}
{{- define "contextd.migrateConfig" -}}
{{- $config := pick (include "contextd.settings" . | fromJson) "database" -}}
{{- include "contextd.integers" $config -}}
{{- toToml $config -}}
{{- end -}}

{{/* All settings, as JSON. */}}
{{- define "contextd.settings" -}}
{{- $decided := dict "server" (dict "drain_delay" (printf "%ds" (int .Values.drain.delay)) "drain_timeout" (printf "%ds" (int .Values.drain.timeout))) -}}
{{- if ne .Values.database.mode "embedded" -}}
{{- $database := dict "sslmode" .Values.database.sslMode -}}
{{- if include "contextd.databaseCASecret" . -}}
{{- $_ := set $database "ca_file" "/etc/contextd-database-ca/ca.crt" -}}
{{- end -}}
{{- $_ := set $decided "database" $database -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .Values.config) $decided | toJson -}}
{{- end -}}

{{/* The names of all Secrets that the Pods read. */}}
{{- define "contextd.secretNames" -}}
{{- $names := list .Values.auth.keysSecret .Values.tls.clientCASecret (include "contextd.tlsSecret" .) (include "contextd.databaseCASecret" .) -}}
{{- if ne .Values.database.mode "embedded" -}}
{{- $names = append $names (index (include "contextd.databaseRef" . | fromYaml) "name") -}}
{{- end -}}
{{- range concat .Values.secretEnv .Values.secretFiles -}}
{{- $names = append $names .secret -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- $names = append $names (dig "valueFrom" "secretKeyRef" "name" "" .) -}}
{{- end -}}
{{- range .Values.extraEnvFrom -}}
{{- $names = append $names (dig "secretRef" "name" "" .) -}}
{{- end -}}
{{- range .Values.extraVolumes -}}
{{- $names = append $names (dig "secret" "secretName" "" .) -}}
{{- end -}}
{{- $names | compact | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* A checksum of the content of those Secrets, as far as Helm can read them. */}}
{{- define "contextd.secretsChecksum" -}}
{{- $root := . -}}
{{- $contents := dict -}}
{{- range include "contextd.secretNames" . | fromJsonArray -}}
{{- $secret := lookup "v1" "Secret" $root.Release.Namespace . -}}
{{- $_ := set $contents . (get ($secret | default dict) "data" | default dict) -}}
{{- end -}}
{{- toJson $contents | sha256sum -}}
{{- end -}}

{{- define "contextd.scheduling" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Host name of the Service. */}}
{{- define "contextd.serviceHost" -}}
{{- printf "%s.%s.svc" (include "contextd.fullname" .) .Release.Namespace -}}
{{- end -}}
