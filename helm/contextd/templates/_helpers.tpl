{{- define "contextd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "contextd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "contextd.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "contextd.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "contextd.selector" -}}
app.kubernetes.io/name: {{ include "contextd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "contextd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "contextd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "contextd.image" -}}
{{- $repository := required "image.repository is required: the chart ships no image. Build one with the contextd program as its entry point." .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "contextd.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "contextd.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "contextd.databaseSecret" -}}
{{- required "database.existingSecret is required: name a Secret that holds the URL of a PostgreSQL under the key database.urlKey. Make one with: kubectl create secret generic contextd-database --from-literal=url=postgres://..." .Values.database.existingSecret -}}
{{- end -}}

{{/* What must be so before anything is rendered. */}}
{{- define "contextd.check" -}}
{{- if not (or .Values.auth.keysSecret .Values.auth.insecureNoAuth) -}}
{{- fail "Say who may call: name a Secret with a keys file in auth.keysSecret, or, for clients that you trust with everything, set auth.insecureNoAuth=true." -}}
{{- end -}}
{{- if and .Values.auth.keysSecret .Values.auth.insecureNoAuth -}}
{{- fail "auth.keysSecret and auth.insecureNoAuth exclude each other." -}}
{{- end -}}
{{- if and .Values.auth.keysSecret (not (or .Values.tls.existingSecret .Values.tls.terminatedElsewhere)) -}}
{{- fail "API keys would travel in plain text: name a Secret with a certificate in tls.existingSecret, or say tls.terminatedElsewhere=true if a mesh or proxy encrypts." -}}
{{- end -}}
{{- if and .Values.tls.existingSecret .Values.tls.terminatedElsewhere -}}
{{- fail "tls.existingSecret and tls.terminatedElsewhere exclude each other." -}}
{{- end -}}
{{- end -}}

{{- define "contextd.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "contextd.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
