package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/etcd-druid/druid/tools/release/bundle"
)

// admissionFile has the objects of the installation that a bundle for OLM cannot contain.
const admissionFile = "admission.yaml"

// bundleSamples are the first contents of the forms in which users of OLM create an EtcdCluster and an EtcdSnapshot.
var bundleSamples = []string{"docs/samples/demo.yaml", "docs/samples/snapshot.yaml"}

const iconFile = "internal/webui/assets/icon.svg"

// oldestKubernetes is the line of the chart with the oldest version of Kubernetes.
var oldestKubernetes = regexp.MustCompile(`(?m)^kubeVersion: ">=(\d+\.\d+\.\d+)-0"$`)

func (r release) bundleFile() string { return fmt.Sprintf("druid-%s-olm-bundle.tar.gz", r.version) }

// writeBundle writes the bundle for OLM, made of install.yaml of the release, and the objects that are applied besides.
// A bundle that OLM or OperatorHub would refuse fails.
func (r *release) writeBundle() error {
	s, err := r.bundleSource()
	if err != nil {
		return err
	}
	files, besides, err := bundle.Make(s)
	if err != nil {
		return fmt.Errorf("write %s: %w", r.bundleFile(), err)
	}
	if err := checkBundle(files); err != nil {
		return fmt.Errorf("the bundle for OLM is not valid: %w", err)
	}
	if err := r.write(admissionFile, func(w io.Writer) error { _, err := w.Write(besides); return err }); err != nil {
		return err
	}
	entries := make([]entry, 0, len(files))
	for _, f := range files {
		entries = append(entries, entry{f.Name, plainMode, f.Content})
	}
	return r.write(r.bundleFile(), func(w io.Writer) error { return writeTarGzip(w, r.at, entries) })
}

// bundleSource reads what the bundle is made of.
func (r *release) bundleSource() (bundle.Source, error) {
	s := bundle.Source{Version: r.version.chart(), At: r.at}
	var err error
	if s.Install, err = os.ReadFile(filepath.Join(r.out, installFile)); err != nil {
		return s, err
	}
	for _, name := range bundleSamples {
		sample, err := os.ReadFile(filepath.Join(r.repo, name))
		if err != nil {
			return s, err
		}
		s.Samples = append(s.Samples, sample)
	}
	if s.Icon, err = os.ReadFile(filepath.Join(r.repo, iconFile)); err != nil {
		return s, err
	}
	chart, err := os.ReadFile(filepath.Join(r.repo, chartFolders[0], "Chart.yaml"))
	if err != nil {
		return s, err
	}
	oldest := oldestKubernetes.FindSubmatch(chart)
	if oldest == nil {
		return s, fmt.Errorf("%s/Chart.yaml has no line like %s", chartFolders[0], oldestKubernetes)
	}
	s.Kubernetes = string(oldest[1])
	for _, p := range r.imagePlatforms {
		s.Architectures = append(s.Architectures, p.arch)
	}
	return s, nil
}

// checkBundle writes the files to a folder of their own, because the library that validates a bundle reads one.
func checkBundle(files []bundle.File) error {
	dir, err := os.MkdirTemp("", "druid-bundle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Content, 0o600); err != nil {
			return err
		}
	}
	return bundle.Check(filepath.Join(dir, "bundle"))
}
