package main

import (
	"bytes"
	"compress/gzip"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testBundle unpacks the bundle. The tests of its package compare it with the manifests.
func testBundle(t *testing.T, r release) {
	t.Helper()
	all := contents(t, r.out)
	compressed, err := gzip.NewReader(bytes.NewReader(all[r.bundleFile()]))
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, compressed)
	want := []string{
		"bundle/bundle.Dockerfile", "bundle/manifests/druid.clusterserviceversion.yaml", "bundle/manifests/druid.poddisruptionbudget.yaml",
		"bundle/manifests/etcd.druid.dev_etcdclusters.yaml", "bundle/manifests/etcd.druid.dev_etcdsnapshots.yaml", "bundle/metadata/annotations.yaml",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("the bundle has other files (-want +got):\n%s", diff)
	}
	csv := string(files["bundle/manifests/druid.clusterserviceversion.yaml"])
	for _, text := range []string{
		"  name: druid.v0.1.0-rc.1\n", "image: ghcr.io/etcd-druid/druid:v0.1.0-rc.1\n", "  minKubeVersion: 1.32.0\n", `createdAt: "2026-01-02T03:04:05Z"`,
		"operatorframework.io/arch." + host.arch + ": supported\n",
	} {
		if !strings.Contains(csv, text) {
			t.Errorf("the ClusterServiceVersion has no %q", text)
		}
	}
	policies := all[admissionFile]
	if !bytes.Contains(all[installFile], policies) || bytes.Count(policies, []byte("\nkind: ValidatingAdmissionPolicy\n")) != 9 {
		t.Errorf("%s has not the nine policies of %s:\n%s", admissionFile, installFile, policies)
	}
}
