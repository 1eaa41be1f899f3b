package leases

import (
	"encoding/json"
	"fmt"
)

// AnnotationHealing is written by druid on a member's Lease, next to the UIDs of its Pod and its volume.
const AnnotationHealing = Prefix + "healing"

// Healing is druid's word on a member's Lease about what it does to get the member on its feet: written before the deed, so
// that a druid that takes over goes on with it, and counts on. It is taken away when the member is well again.
type Healing struct {
	// Restarts is how often in a row the member's Pod was deleted because its etcd did not become ready.
	Restarts int `json:"restarts,omitempty"`
	// PodUID is the Pod that the last of them deletes, or has deleted.
	PodUID string `json:"podUID,omitempty"`
	// ClaimUID is the PersistentVolumeClaim that is given up together with the node that alone could mount its volume.
	ClaimUID string `json:"claimUID,omitempty"`
	// NotComing is the ID, hex, of a learner at the member's peer URL that no Pod starts any more: the Pod that added it is
	// gone, and the one after it did not come up. A Pod that does come adds a learner with an ID of its own, so that this
	// word never means that one.
	NotComing string `json:"notComing,omitempty"`
}

// ParseHealing reads the annotation. What cannot be understood is the zero Healing: it says of no learner that it is not
// coming, and druid begins to count again.
func ParseHealing(s string) Healing {
	var h Healing
	if s == "" || json.Unmarshal([]byte(s), &h) != nil || h.Restarts < 0 {
		return Healing{}
	}
	return h
}

// Encode is the value of AnnotationHealing, empty for the zero Healing.
func (h Healing) Encode() (string, error) {
	if h == (Healing{}) {
		return "", nil
	}
	raw, err := json.Marshal(h)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", AnnotationHealing, err)
	}
	return string(raw), nil
}
