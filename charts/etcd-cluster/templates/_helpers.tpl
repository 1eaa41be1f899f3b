{{- /* The name of the EtcdCluster. */ -}}
{{- define "etcd-cluster.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end -}}

{{- /* Whether the members serve TLS. */ -}}
{{- define "etcd-cluster.tls" -}}
{{- with .Values.spec.tls -}}{{- if .client -}}yes{{- end -}}{{- end -}}
{{- end -}}
