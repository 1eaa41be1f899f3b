package v1alpha1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
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
