package leases

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAdmissionPolicyListsBackupReports: the admission policy lists what agents report about backups.
// The admission policy refuses a report as a whole if it has an annotation that the policy does not list.
func TestAdmissionPolicyListsBackupReports(t *testing.T) {
	policy, err := os.ReadFile("../manifests/install/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)endsWith\('-snapshot'\) \? \[(.*?)\]`).FindSubmatch(policy)
	if list == nil {
		t.Fatal("the policy has no list for the Leases of snapshots")
	}
	var listed []string
	for _, word := range regexp.MustCompile(`'([a-z0-9-]+)'`).FindAllSubmatch(list[1], -1) {
		listed = append(listed, Prefix+string(word[1]))
	}
	written := map[string]*string{AnnotationSnapshotAnswer: nil}
	maps.Copy(written, BackupPatch{Backup: fullSaved()}.encode().Metadata.Annotations)
	maps.Copy(written, Verification{}.encode().Metadata.Annotations)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(written)), slices.Sorted(slices.Values(listed))); diff != "" {
		t.Errorf("the policy lists other annotations (-written +listed):\n%s", strings.ReplaceAll(diff, Prefix, ""))
	}
}
