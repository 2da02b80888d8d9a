{{/* Volumes for Kafka's files. Argument: root, component, service. */}}
{{- define "tidegate.kafkaVolumes" -}}
{{- $ca := .root.Values.kafka.ca -}}
{{- $protocol := include "tidegate.protocol" .root -}}
{{- if has $protocol (list "SSL" "SASL_SSL") }}
{{- if $ca.secret }}
- name: kafka-ca
  secret: {secretName: {{ $ca.secret }}, defaultMode: 0440, items: [{key: {{ $ca.key }}, path: {{ $ca.key }}}]}
{{- else if $ca.configMap }}
- name: kafka-ca
  configMap: {name: {{ $ca.configMap }}, defaultMode: 0440, items: [{key: {{ $ca.key }}, path: {{ $ca.key }}}]}
{{- end }}
{{- end }}
{{- with include "tidegate.kafkaSecret" . }}
{{- if ne $protocol "PLAINTEXT" }}
- name: kafka-user
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      {{- if hasPrefix "SASL" $protocol }}
      - {key: {{ $.root.Values.kafka.passwordKey }}, path: {{ $.root.Values.kafka.passwordKey }}}
      {{- else }}
      - {key: {{ $.root.Values.kafka.certificateKey }}, path: {{ $.root.Values.kafka.certificateKey }}}
      - {key: {{ $.root.Values.kafka.keyKey }}, path: {{ $.root.Values.kafka.keyKey }}}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tidegate.kafkaMounts" -}}
{{- $ca := .root.Values.kafka.ca -}}
{{- $protocol := include "tidegate.protocol" .root -}}
{{- if and (has $protocol (list "SSL" "SASL_SSL")) (or $ca.secret $ca.configMap) }}
- {name: kafka-ca, mountPath: /etc/kafka/ca, readOnly: true}
{{- end }}
{{- if and (ne $protocol "PLAINTEXT") (include "tidegate.kafkaSecret" .) }}
- {name: kafka-user, mountPath: /etc/kafka/user, readOnly: true}
{{- end }}
{{- end }}

{{/* Environment for SASL. Argument: root, component, service. */}}
{{- define "tidegate.kafkaEnvironment" -}}
{{- if hasPrefix "SASL" (include "tidegate.protocol" .root) }}
{{- with include "tidegate.kafkaSecret" . }}
- name: TIDEGATE__KAFKA__SECURITY__USERNAME
  value: {{ include "tidegate.kafkaUser" $ | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tidegate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tidegate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
