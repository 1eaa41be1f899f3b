package main

import (
	"fmt"
	"regexp"
	"strings"
)

// version is the version of a release, like v1.2.3 or v1.2.3-rc.1.
type version string

// semantic is a version of semver.org after a v. Without build metadata, because the tag of an image cannot contain a plus.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|` +
	`\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?$`)

// tagLength is how many characters the tag of an image can have, by the OCI distribution specification.
const tagLength = 128

func parseVersion(text string) (version, error) {
	switch {
	case text == "":
		return "", fmt.Errorf("the version is empty: set it, like make release VERSION=v0.1.0")
	case len(text) > tagLength:
		return "", fmt.Errorf("the version has %d characters, and the tag of an image has at most %d", len(text), tagLength)
	case !semantic.MatchString(text):
		return "", fmt.Errorf("the version is %q: want v<major>.<minor>.<patch>, like v0.1.0 or v0.1.0-rc.1, without build metadata", text)
	}
	return version(text), nil
}

// chart is the version as Helm writes it.
func (v version) chart() string { return strings.TrimPrefix(string(v), "v") }

// final is the version that a pre-release precedes, or the version itself.
func (v version) final() version {
	final, _, _ := strings.Cut(string(v), "-")
	return version(final)
}
