{{- define "tidegate.protocol" -}}
{{- dig "security" "protocol" "PLAINTEXT" .Values.settings.kafka -}}
{{- end }}

{{/* tidegate.yaml: the settings, and where the files of `kafka` are mounted. */}}
{{- define "tidegate.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- $protocol := include "tidegate.protocol" . -}}
{{- $security := $settings.kafka.security | default dict -}}
{{- if and (has $protocol (list "SSL" "SASL_SSL")) (or .Values.kafka.ca.secret .Values.kafka.ca.configMap) -}}
{{- $_ := set $security "ca_location" (printf "/etc/kafka/ca/%s" .Values.kafka.ca.key) -}}
{{- end -}}
{{- if and (eq $protocol "SSL") (or .Values.strimzi.users .Values.committer.kafkaSecret) -}}
{{- $_ := set $security "certificate_location" (printf "/etc/kafka/user/%s" .Values.kafka.certificateKey) -}}
{{- $_ := set $security "key_location" (printf "/etc/kafka/user/%s" .Values.kafka.keyKey) -}}
{{- end -}}
{{- if and (hasPrefix "SASL" $protocol) (or .Values.strimzi.users .Values.committer.kafkaSecret) -}}
{{- /* A file, unlike a variable, is replaced in a running pod. */ -}}
{{- $_ := set $security "password_location" (printf "/etc/kafka/user/%s" .Values.kafka.passwordKey) -}}
{{- end -}}
{{- range $name, $section := $settings -}}
{{- range $key, $value := $section -}}
{{- if and (kindIs "map" $value) (empty $value) -}}{{- $_ := unset $section $key -}}{{- end -}}
{{- end -}}
{{- if empty $section -}}{{- $_ := unset $settings $name -}}{{- end -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end }}

{{/* The settings of a service, and of a job with its routes. Argument: root, service. */}}
{{- define "tidegate.settingsOf" -}}
{{- if .service.routes -}}
{{- $ingest := dict "routes" .service.routes -}}
{{- with .service.spark }}{{ $_ := set $ingest "spark" . }}{{ end -}}
{{- with .service.registry_properties }}{{ $_ := set $ingest "registry_properties" . }}{{ end -}}
{{- toYaml (set (include "tidegate.settings" .root | fromYaml) "ingest" $ingest) -}}
{{- else -}}
{{- include "tidegate.settings" .root -}}
{{- end -}}
{{- end }}

{{/* The name of the ConfigMap with them. Argument: root, component, service. */}}
{{- define "tidegate.settingsName" -}}
{{- include "tidegate.fullname" .root }}{{ if .service.routes }}-{{ .component }}{{ end }}
{{- end }}
