package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// pluginName is the archive of the kubectl plugin, and krewFile the name of its manifest for krew.
const (
	pluginName = "kubectl-druid"
	krewFile   = pluginName + "-krew.yaml"
)

// completionName is the program that kubectl starts for the completion of the plugin, if it is in the PATH.
const completionName = "kubectl_complete-druid"

// completion passes the words of the command line to the plugin, which is found in the PATH as kubectl finds it.
const completion = `#!/bin/sh
exec kubectl-druid __complete "$@"
`

// downloads is where the files of a release are published.
const downloads = "https://github.com/etcd-druid/druid/releases/download"

const krewHead = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: druid
spec:
  version: %s
  homepage: https://github.com/etcd-druid/druid
  shortDescription: Show and operate etcd clusters of druid
  description: |
    Shows etcd clusters that druid runs, worst first: members, backups, certificates,
    and what to do now. Creates snapshots, approves recoveries, replaces members,
    pauses clusters, and writes a report for a support request.
  platforms:
`

const krewPlatform = `  - selector:
      matchLabels:
        os: %s
        arch: %s
    uri: %s/%s/%s
    sha256: %x
    bin: %s
`

// writeKrew writes the manifest with which krew installs the plugin from the archives of the release.
func (r *release) writeKrew() error {
	var text bytes.Buffer
	fmt.Fprintf(&text, krewHead, r.version)
	found := false
	for _, t := range r.tools {
		if t.name != pluginName {
			continue
		}
		for _, p := range t.platforms {
			name := archiveName(t.name, r.version, p)
			content, err := os.ReadFile(filepath.Join(r.out, name))
			if err != nil {
				return fmt.Errorf("write %s: %w", krewFile, err)
			}
			fmt.Fprintf(&text, krewPlatform, p.os, p.arch, downloads, r.version, name, sha256.Sum256(content), pluginName+p.extension())
			found = true
		}
	}
	if !found {
		return nil
	}
	return r.write(krewFile, func(w io.Writer) error { _, err := text.WriteTo(w); return err })
}

// archiveName is the name of the archive of a tool.
func archiveName(tool string, v version, p platform) string {
	suffix := ".tar.gz"
	if p.os == "windows" {
		suffix = ".zip"
	}
	return fmt.Sprintf("%s-%s-%s-%s%s", tool, v, p.os, p.arch, suffix)
}
