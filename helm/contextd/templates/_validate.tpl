{{/* Rejects invalid combinations of values and says what to change. The schema has already rejected invalid single values. */}}
{{- define "contextd.validate" -}}
{{- include "contextd.validateAuth" . -}}
{{- include "contextd.validateTls" . -}}
{{- include "contextd.validateDatabase" . -}}
{{- include "contextd.validateScaling" . -}}
{{- include "contextd.validateConfig" . -}}
{{- include "contextd.validateNames" . -}}
{{- include "contextd.validatePod" . -}}
{{- end -}}

{{/* Rejects what the API server would reject later or what would override a setting: the name of all objects, and the labels of the chart. */}}
{{- define "contextd.validateNames" -}}
{{- $name := include "contextd.fullname" . -}}
{{- if not (regexMatch "^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$" $name) -}}
{{- fail (printf "%q is not a valid name of a Service: it must begin with a letter and contain only a-z, 0-9 and -. Choose another release name, or set fullnameOverride." $name) -}}
{{- end -}}
{{- range $setting := list "commonLabels" "podLabels" -}}
{{- range $label, $_ := index $.Values $setting -}}
{{- if has $label (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart") -}}
{{- fail (printf "%s.%s is a label that the chart sets: the Deployment selects its Pods by it. Remove it." $setting $label) -}}
{{- end -}}
{{- if and (eq $setting "podLabels") (hasKey $.Values.commonLabels $label) -}}
{{- fail (printf "podLabels.%s is also set in commonLabels: remove one of them." $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Rejects duplicate names in the Pod. */}}
{{- define "contextd.validatePod" -}}
{{- $seen := dict -}}
{{- range include "contextd.env" . | fromYamlArray -}}
{{- if hasKey $seen .name -}}
{{- fail (printf "the environment variable %s is set twice: by the chart, secretEnv or extraEnv. Set it in one place; variables set by the chart are derived from other values." .name) -}}
{{- end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- $volumes := dict "migrate-config" true -}}
{{- range include "contextd.volumes" . | fromYamlArray -}}
{{- if hasKey $volumes .name -}}
{{- fail (printf "extraVolumes has a volume named %s, which the chart also has: choose another name." .name) -}}
{{- end -}}
{{- $_ := set $volumes .name true -}}
{{- end -}}
{{- $mounted := dict -}}
{{- range include "contextd.mounts" . | fromYamlArray -}}
{{- if not (hasKey $volumes .name) -}}
{{- fail (printf "extraVolumeMounts mounts the volume %s, which does not exist: add it to extraVolumes." .name) -}}
{{- end -}}
{{- if hasKey $mounted .mountPath -}}
{{- fail (printf "two volumes are mounted at %s (%s and %s): choose another mountPath." .mountPath (get $mounted .mountPath) .name) -}}
{{- end -}}
{{- $_ := set $mounted .mountPath .name -}}
{{- end -}}
{{- $containers := dict "contextd" true "migrate" true -}}
{{- range concat .Values.initContainers .Values.extraContainers -}}
{{- if hasKey $containers .name -}}
{{- fail (printf "two containers of the Pod are named %s: contextd and migrate are containers of the chart. Choose another name." .name) -}}
{{- end -}}
{{- $_ := set $containers .name true -}}
{{- end -}}
{{- range $resource, $limit := .Values.resources.limits | default dict -}}
{{- $request := index ($.Values.resources.requests | default dict) $resource -}}
{{- if $request -}}
{{- if gt (include "contextd.quantity" $request | float64) (include "contextd.quantity" $limit | float64) -}}
{{- fail (printf "resources.requests.%s of %v exceeds resources.limits.%s of %v." $resource $request $resource $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A Kubernetes quantity as a number. */}}
{{- define "contextd.quantity" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $factors := dict "n" 1e-9 "u" 1e-6 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (trimSuffix $unit $text | float64) (get $factors $unit | default 1 | float64) -}}
{{- end -}}

{{/* The path of a secret in the configuration, which the chart writes to a ConfigMap. Empty if there is none. Argument: (list VALUE PATH). */}}
{{- define "contextd.secretIn" -}}
{{- $path := index . 1 -}}
{{- $found := "" -}}
{{- range $key, $value := index . 0 -}}
{{- $here := printf "%s.%s" $path $key -}}
{{- $inHeaders := and (hasSuffix ".headers" $path) (regexMatch "(?i)authorization|key|token|secret|cookie|password" $key) -}}
{{- if kindIs "map" $value -}}
{{- $found = default (include "contextd.secretIn" (list $value $here)) $found -}}
{{- else if and $value (or $inHeaders (has $key (list "api_key" "token" "password" "secret" "client_secret"))) -}}
{{- $found = default $here $found -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{- define "contextd.validateAuth" -}}
{{- $auth := .Values.config.auth | default dict -}}
{{- $known := or .Values.auth.keysSecret $auth.jwt $auth.certificates -}}
{{- if not (or $known .Values.auth.insecureNoAuth) -}}
{{- fail "Authentication is not configured: set auth.keysSecret to a Secret with a keys file, configure config.auth.jwt or config.auth.certificates, or, if you trust all clients with full access, set auth.insecureNoAuth=true." -}}
{{- end -}}
{{- if and $known .Values.auth.insecureNoAuth -}}
{{- fail "auth.insecureNoAuth=true contradicts auth.keysSecret, config.auth.jwt and config.auth.certificates: remove one of them." -}}
{{- end -}}
{{- end -}}

{{- define "contextd.validateTls" -}}
{{- $ways := list -}}
{{- if .Values.tls.existingSecret }}{{ $ways = append $ways "tls.existingSecret" }}{{ end -}}
{{- if .Values.tls.terminatedElsewhere }}{{ $ways = append $ways "tls.terminatedElsewhere" }}{{ end -}}
{{- if .Values.tls.certManager.enabled }}{{ $ways = append $ways "tls.certManager.enabled" }}{{ end -}}
{{- if gt (len $ways) 1 -}}
{{- fail (printf "%s are mutually exclusive: keep one of them." (join " and " $ways)) -}}
{{- end -}}
{{- if and (not .Values.auth.insecureNoAuth) (empty $ways) -}}
{{- fail "Credentials would be sent in plain text: set tls.existingSecret to a Secret with a certificate, let cert-manager issue one (tls.certManager.enabled=true), or set tls.terminatedElsewhere=true if a mesh or proxy encrypts." -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.enabled requires an issuer: set tls.certManager.issuerRef.name." -}}
{{- end -}}
{{- if and .Values.tls.clientCASecret (not (include "contextd.tlsSecret" .)) -}}
{{- fail "tls.clientCASecret requires TLS in the Pods: set tls.existingSecret or tls.certManager.enabled=true." -}}
{{- end -}}
{{- end -}}

{{- define "contextd.validateDatabase" -}}
{{- if eq .Values.database.mode "embedded" -}}
{{- if gt (int (include "contextd.replicas" .)) 1 -}}
{{- fail "database.mode=embedded supports only one replica: set replicaCount=1 and autoscaling.enabled=false, or use an external database." -}}
{{- end -}}
{{- if .Values.database.existingSecret -}}
{{- fail "database.existingSecret is not used with database.mode=embedded: remove it, or set database.mode=external." -}}
{{- end -}}
{{- end -}}
{{- if and .Values.database.caSecret (index (.Values.config.database | default dict) "ca_file") -}}
{{- fail "database.caSecret and config.database.ca_file are mutually exclusive: remove one of them." -}}
{{- end -}}
{{- if hasKey (.Values.config.database | default dict) "sslmode" -}}
{{- fail "config.database.sslmode is set by the chart: set database.sslMode instead." -}}
{{- end -}}
{{- if and .Values.database.caSecret (eq .Values.database.mode "embedded") -}}
{{- fail "database.caSecret is not used with database.mode=embedded: remove it." -}}
{{- end -}}
{{- if and (eq .Values.migrations.mode "hook") (ne .Values.database.mode "external") -}}
{{- fail (printf "migrations.mode=hook runs before the objects of the chart are created, so it cannot connect to the database of database.mode=%s: use migrations.mode=job." .Values.database.mode) -}}
{{- end -}}
{{- end -}}

{{- define "contextd.validateScaling" -}}
{{- if .Values.autoscaling.enabled -}}
{{- if ne (int .Values.replicaCount) 1 -}}
{{- fail "autoscaling.enabled controls the number of replicas: remove replicaCount, and set autoscaling.minReplicas and maxReplicas." -}}
{{- end -}}
{{- if lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas) -}}
{{- fail "autoscaling.maxReplicas is less than autoscaling.minReplicas." -}}
{{- end -}}
{{- if not (or .Values.autoscaling.targetCPUUtilizationPercentage .Values.autoscaling.targetMemoryUtilizationPercentage .Values.autoscaling.metrics) -}}
{{- fail "autoscaling.enabled requires at least one metric: set autoscaling.targetCPUUtilizationPercentage, targetMemoryUtilizationPercentage or metrics." -}}
{{- end -}}
{{- $requests := .Values.resources.requests | default dict -}}
{{- if and .Values.autoscaling.targetCPUUtilizationPercentage (not $requests.cpu) -}}
{{- fail "autoscaling.targetCPUUtilizationPercentage is relative to the requested CPU: set resources.requests.cpu, or set the target to null." -}}
{{- end -}}
{{- if and .Values.autoscaling.targetMemoryUtilizationPercentage (not $requests.memory) -}}
{{- fail "autoscaling.targetMemoryUtilizationPercentage is relative to the requested memory: set resources.requests.memory, or set the target to null." -}}
{{- end -}}
{{- end -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- if and $budget.enabled (not (kindIs "invalid" $budget.maxUnavailable)) (not (kindIs "invalid" $budget.minAvailable)) -}}
{{- fail "podDisruptionBudget.minAvailable and maxUnavailable are mutually exclusive: set maxUnavailable to null." -}}
{{- end -}}
{{- if and (eq (toString .Values.strategy.maxSurge) "0") (eq (toString .Values.strategy.maxUnavailable) "0") -}}
{{- fail "strategy.maxSurge and strategy.maxUnavailable cannot both be 0: no Pod could be replaced." -}}
{{- end -}}
{{- end -}}

{{- define "contextd.validateConfig" -}}
{{- $server := .Values.config.server | default dict -}}
{{- if or (hasKey $server "drain_delay") (hasKey $server "drain_timeout") -}}
{{- fail "config.server.drain_delay and drain_timeout are derived from drain.delay and drain.timeout, as is the Pod's grace period: set drain.delay and drain.timeout instead." -}}
{{- end -}}
{{- if or (hasKey $server "listen") (hasKey $server "admin_listen") -}}
{{- fail "config.server.listen and admin_listen are set by the chart, because the Service, the probes and the monitors depend on them. Use service.port to change the port of the Service." -}}
{{- end -}}
{{- if hasKey (.Values.config.database | default dict) "url" -}}
{{- fail "config.database.url would put a password into a ConfigMap: set database.existingSecret to a Secret instead." -}}
{{- end -}}
{{- with include "contextd.secretIn" (list .Values.config "config") -}}
{{- fail (printf "%s would put a secret into a ConfigMap: name an environment variable (api_key_env, token_env, client_secret_env) and set it with secretEnv, or name a file (api_key_file, token_file, client_secret_file) and mount it with secretFiles." .) -}}
{{- end -}}
{{- if hasKey (.Values.config.tls | default dict) "cert_file" -}}
{{- fail "config.tls.cert_file is set by the chart: set tls.existingSecret instead." -}}
{{- end -}}
{{- if and .Values.service.trafficDistribution (semverCompare "<1.31.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "service.trafficDistribution requires Kubernetes 1.31, but this cluster has %s: leave it empty." .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- $readiness := .Values.probes.readiness -}}
{{- $noticed := mul $readiness.periodSeconds $readiness.failureThreshold -}}
{{- if lt (int .Values.drain.delay) (int $noticed) -}}
{{- fail (printf "drain.delay of %d s is shorter than the time until the readiness probe fails (probes.readiness: %d s × %d): set it to at least %d." (int .Values.drain.delay) (int $readiness.periodSeconds) (int $readiness.failureThreshold) (int $noticed)) -}}
{{- end -}}
{{- if lt (int .Values.drain.reserve) 7 -}}
{{- fail "drain.reserve must be at least 7 s, the time that the program may take after its drain (docs/reliability.md, Stopping)." -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.headlessService.enabled) -}}
{{- fail "metrics.serviceMonitor scrapes through the headless Service: set headlessService.enabled=true, or use metrics.podMonitor." -}}
{{- end -}}
{{- if and .Values.test.enabled (include "contextd.clientCertRequired" .) (not .Values.headlessService.enabled) -}}
{{- fail "config.tls.client_cert_required: the test has no client certificate and uses the admin port through the headless Service. Set headlessService.enabled=true or test.enabled=false." -}}
{{- end -}}
{{- if and .Values.test.caSecret (not (include "contextd.tlsSecret" .)) -}}
{{- fail "test.caSecret is not used without TLS in the Pods: remove it, or set tls.existingSecret or tls.certManager.enabled=true." -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor would scrape each Pod twice: enable only one of them." -}}
{{- end -}}
{{- if and .Values.grpcRoute.enabled (empty .Values.grpcRoute.parentRefs) -}}
{{- fail "grpcRoute.enabled requires a gateway: set grpcRoute.parentRefs." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (empty .Values.ingress.hosts) -}}
{{- fail "ingress.enabled requires a host: set ingress.hosts." -}}
{{- end -}}
{{- end -}}
