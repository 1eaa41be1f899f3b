package v1alpha1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Former returns what was removed from spec.tls and is still used, or nil.
func (s *EtcdClusterStatus) Former() (*TLSSpec, error) {
	if s.FormerTLS == nil || len(s.FormerTLS.Raw) == 0 {
		return nil, nil
	}
	former := &TLSSpec{}
	if err := json.Unmarshal(s.FormerTLS.Raw, former); err != nil {
		return nil, fmt.Errorf("read status.formerTLS, which only druid writes: %w; if druid issued the certificates, remove the field; otherwise set it to the part of spec.tls that was removed", err)
	}
	return former, nil
}

// KeepFormer writes what is still used of a former spec.tls, or removes it if that is nothing.
func (s *EtcdClusterStatus) KeepFormer(former TLSSpec) error {
	if former == (TLSSpec{}) {
		s.FormerTLS = nil
		return nil
	}
	raw, err := json.Marshal(former)
	if err != nil {
		return fmt.Errorf("write status.formerTLS: %w", err)
	}
	s.FormerTLS = &runtime.RawExtension{Raw: raw}
	return nil
}
