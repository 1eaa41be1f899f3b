{{- /* The image of druid. A digest goes before a tag. */ -}}
{{- define "druid.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The labels of all objects. The install manifests have the same. */ -}}
{{- define "druid.labels" -}}
app.kubernetes.io/name: druid
{{- end -}}
