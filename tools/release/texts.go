package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The files of the repository that a release copies.
const (
	installFile   = "install.yaml"
	changelogFile = "docs/reference/changelog.md"
	notesFile     = "release-notes.md"
)

// chartFolders are the charts of a release.
var chartFolders = []string{"charts/druid", "charts/etcd-cluster"}

// writeInstall writes the manifests with the image of the release. druid gives the agents the same one.
func (r *release) writeInstall() error {
	const file = "manifests/install/" + installFile
	text, err := os.ReadFile(filepath.Join(r.repo, file))
	if err != nil {
		return err
	}
	development := repository + ":dev"
	if found := strings.Count(string(text), development); found != 1 {
		return fmt.Errorf("%s names the image %s %d times, want 1", file, development, found)
	}
	text = bytes.ReplaceAll(text, []byte(development), []byte(r.imageName()))
	return r.write(installFile, func(w io.Writer) error { _, err := w.Write(text); return err })
}

// chartVersions are the lines of Chart.yaml that a release sets.
var chartVersions = map[string]*regexp.Regexp{
	"version":    regexp.MustCompile(`(?m)^version: .*$`),
	"appVersion": regexp.MustCompile(`(?m)^appVersion: .*$`),
}

// writeChart writes the package of the chart as `helm package` does. Its own archive has the times of the files on this machine, and
// so other bytes in each clone. The image of the chart has the tag appVersion.
func (r *release) writeChart(folder string) error {
	entries, err := filesOf(filepath.Join(r.repo, folder))
	if err != nil {
		return err
	}
	rules, err := os.ReadFile(filepath.Join(r.repo, folder, ".helmignore"))
	if err != nil {
		return err
	}
	values := map[string]string{"version": r.version.chart(), "appVersion": string(r.version)}
	var packed []entry
	for _, e := range entries {
		if ignored(string(rules), e.name) {
			continue
		}
		if e.name == "Chart.yaml" {
			for field, line := range chartVersions {
				if found := len(line.FindAll(e.content, -1)); found != 1 {
					return fmt.Errorf("%s/Chart.yaml has %d lines with %s, want 1", folder, found, field)
				}
				e.content = line.ReplaceAllLiteral(e.content, []byte(field+": "+values[field]))
			}
		}
		e.name = path.Base(folder) + "/" + e.name
		packed = append(packed, e)
	}
	return r.write(path.Base(folder)+"-"+r.version.chart()+".tgz", func(w io.Writer) error { return writeTarGzip(w, r.at, packed) })
}

// ignored returns whether the .helmignore of the chart leaves the file out. Its patterns are about names, not about paths.
func ignored(rules, name string) bool {
	for pattern := range strings.Lines(rules) {
		if match, err := path.Match(strings.TrimSpace(pattern), path.Base(name)); err == nil && match {
			return true
		}
	}
	return false
}

// upgradeHeading begins the part of a section of the changelog that says what users do before they upgrade.
const upgradeHeading = "\n### Before you upgrade\n"

// changes returns the section of the changelog about the release. A pre-release has the section of the version that it precedes.
func (r *release) changes() (string, error) {
	text, err := fs.ReadFile(os.DirFS(r.repo), changelogFile)
	if err != nil {
		return "", err
	}
	for _, v := range []version{r.version, r.version.final()} {
		_, after, found := strings.Cut("\n"+string(text), "\n## Version "+v.chart()+"\n")
		if !found {
			continue
		}
		section, _, _ := strings.Cut(after, "\n## ")
		if !strings.Contains(section, upgradeHeading) {
			return "", fmt.Errorf("%s does not say what users do before they upgrade to %s: add the line %q to its section, and the steps", changelogFile,
				v, strings.TrimSpace(upgradeHeading))
		}
		return strings.TrimSpace(section), nil
	}
	return "", fmt.Errorf("%s has no section for the release: add the line \"## Version %s\" and what changes for users", changelogFile, r.version.final().chart())
}

// writeNotes writes what the page of the release says.
func (r *release) writeNotes(changes string, digest v1.Hash) error {
	return r.write(notesFile, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "# druid %s\n\n%s\n\n## Image\n\n```\n%s@%s\n```\n\nCommit %s.\n", r.version, changes, r.imageName(), digest, r.commit)
		return err
	})
}
