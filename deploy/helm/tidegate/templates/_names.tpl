{{- define "tidegate.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains "tidegate" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-tidegate" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels by which pods are selected; they never change. Argument: root, component. */}}
{{- define "tidegate.selector" -}}
app.kubernetes.io/name: tidegate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* All labels of a resource. Argument: root, component. */}}
{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/part-of: tidegate
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* The reference of an image. Argument: root, image (name, digest). */}}
{{- define "tidegate.image" -}}
{{- $repository := printf "%s/%s" (.root.Values.image.registry | trimSuffix "/") .image.name -}}
{{- if .image.digest }}{{ printf "%s@%s" $repository .image.digest }}
{{- else }}{{ printf "%s:%s" $repository (.root.Values.image.tag | default .root.Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The user of a service in Kafka. Argument: root, component, service. */}}
{{- define "tidegate.kafkaUser" -}}
{{ .service.kafkaUser | default (printf "%s-%s" (include "tidegate.fullname" .root) .component) }}
{{- end }}

{{/* The Secret of that user, or nothing. With Strimzi's users it has the user's name. */}}
{{- define "tidegate.kafkaSecret" -}}
{{- if .service.kafkaSecret }}{{ .service.kafkaSecret }}
{{- else if .root.Values.strimzi.users }}{{ include "tidegate.kafkaUser" . }}
{{- end }}
{{- end }}

{{/* The services and the jobs of `ingest`: a list of component, service, as JSON. Jobs have routes; what runs
in the image of producers has a command. */}}
{{- define "tidegate.services" -}}
{{- $all := list
      (dict "component" "committer" "service" .Values.committer)
      (dict "component" "checkpointer" "service" .Values.checkpointer)
      (dict "component" "cdc-publisher" "service" .Values.cdcPublisher)
      (dict "component" "maintain" "service" (set (deepCopy .Values.maintain) "command" "maintain")) -}}
{{- range .Values.ingest -}}
{{- $job := mergeOverwrite (deepCopy $.Values.ingestDefaults) . -}}
{{- $all = append $all (dict "component" (printf "ingest-%s" .name) "service" (set (set $job "replicas" 1) "command" "ingest")) -}}
{{- end -}}
{{- $some := list -}}
{{- range $all }}{{- if gt (int .service.replicas) 0 }}{{- $some = append $some . }}{{- end }}{{- end -}}
{{- toJson $some -}}
{{- end }}
