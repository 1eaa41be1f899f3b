package v1alpha1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Adopted returns the spec that druid works towards, from status.observed. It returns nil before druid accepted a
// spec.
func (s *EtcdClusterStatus) Adopted() (*EtcdClusterSpec, error) {
	if s.Observed == nil || len(s.Observed.Raw) == 0 {
		return nil, nil
	}
	spec := &EtcdClusterSpec{}
	if err := json.Unmarshal(s.Observed.Raw, spec); err != nil {
		return nil, fmt.Errorf("status.observed cannot be understood; remove it, and druid adopts spec as it is: %w", err)
	}
	return spec, nil
}

// Adopt writes spec to status.observed as the one that druid works towards.
func (s *EtcdClusterStatus) Adopt(spec EtcdClusterSpec) error {
	raw, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write the spec into status.observed: %w", err)
	}
	s.Observed = &runtime.RawExtension{Raw: raw}
	return nil
}

// ResolvedRestore is the backup that an EtcdSnapshot names, as status.restore records it.
type ResolvedRestore struct {
	// SnapshotUID is the UID of the EtcdSnapshot.
	SnapshotUID types.UID `json:"snapshotUID"`
	// RestoreSpec without a snapshotRef.
	RestoreSpec `json:",inline"`
	// Lineage of the backup. It is empty if the EtcdSnapshot does not have it.
	Lineage string `json:"lineage,omitempty"`
}

// ResolvedRestore returns the backup that the cluster starts from. It returns nil before druid read the EtcdSnapshot.
func (s *EtcdClusterStatus) ResolvedRestore() (*ResolvedRestore, error) {
	if s.Restore == nil || len(s.Restore.Raw) == 0 {
		return nil, nil
	}
	resolved := &ResolvedRestore{}
	if err := json.Unmarshal(s.Restore.Raw, resolved); err != nil {
		return nil, fmt.Errorf("status.restore cannot be understood: %w", err)
	}
	return resolved, nil
}

// Resolve writes the backup that an EtcdSnapshot names to status.restore.
func (s *EtcdClusterStatus) Resolve(resolved ResolvedRestore) error {
	raw, err := json.Marshal(resolved)
	if err != nil {
		return fmt.Errorf("write what is restored into status.restore: %w", err)
	}
	s.Restore = &runtime.RawExtension{Raw: raw}
	return nil
}
