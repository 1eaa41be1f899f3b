package v1alpha1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Adopted is the spec that druid works towards, from status.observed; nil while none was adopted.
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

// Adopt makes spec the one that druid works towards.
func (s *EtcdClusterStatus) Adopt(spec EtcdClusterSpec) error {
	raw, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write the spec into status.observed: %w", err)
	}
	s.Observed = &runtime.RawExtension{Raw: raw}
	return nil
}

// ResolvedRestore is what an EtcdSnapshot stands for, as status.restore keeps it.
type ResolvedRestore struct {
	// SnapshotUID of the EtcdSnapshot.
	SnapshotUID types.UID `json:"snapshotUID"`
	// RestoreSpec without a snapshotRef.
	RestoreSpec `json:",inline"`
	// Lineage that the backup is of; empty where the EtcdSnapshot does not tell.
	Lineage string `json:"lineage,omitempty"`
}

// ResolvedRestore is what the EtcdSnapshot stands for that the cluster begins with; nil where that was not found out.
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

// Resolve keeps what the EtcdSnapshot stands for.
func (s *EtcdClusterStatus) Resolve(resolved ResolvedRestore) error {
	raw, err := json.Marshal(resolved)
	if err != nil {
		return fmt.Errorf("write what is restored into status.restore: %w", err)
	}
	s.Restore = &runtime.RawExtension{Raw: raw}
	return nil
}
