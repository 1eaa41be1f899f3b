package v1alpha1

// DisruptionSpec configures which Pods can be evicted, for example when a node is drained. druid writes it to the
// PodDisruptionBudget of the cluster.
type DisruptionSpec struct {
	// singleMember configures the eviction of the only voting member. Block: it cannot be evicted, so a drain waits until you
	// delete its Pod. Allow: it can be evicted while the membership does not change, so a drain interrupts all clients until
	// the Pod runs on another node. If no other node can mount its volume, they wait until the node returns. With several
	// voting members it has no effect. Allow cannot be combined with storage.medium. Defaults to Block.
	// +kubebuilder:default=Block
	// +optional
	SingleMember SingleMemberDisruption `json:"singleMember,omitempty"`
}

// SingleMemberDisruption says whether the only voting member can be evicted.
//
// +kubebuilder:validation:Enum=Block;Allow
type SingleMemberDisruption string

// Whether the only voting member can be evicted.
const (
	SingleMemberBlock SingleMemberDisruption = "Block"
	SingleMemberAllow SingleMemberDisruption = "Allow"
)

// EvictsSingleMember says whether the only voting member can be evicted.
func (c *EtcdCluster) EvictsSingleMember() bool {
	return c.Spec.Disruption != nil && c.Spec.Disruption.SingleMember == SingleMemberAllow
}
