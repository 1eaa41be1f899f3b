package leases

import (
	"net/url"
	"strings"
)

// Names, labels and annotations of a cluster's Leases. They are the contract between druid and the agents, so they stand
// in one place and never change their meaning.
const (
	// Prefix of every label and annotation that druid and the agents write.
	Prefix = "etcd.druid.dev/"

	// LabelCluster carries the EtcdCluster's name on every object of the cluster.
	LabelCluster = Prefix + "cluster"
	// LabelComponent says what a Lease is: one of the Component values.
	LabelComponent = Prefix + "component"
	// LabelMember carries the member's name on its Lease, PersistentVolumeClaim and Pod.
	LabelMember = Prefix + "member"
)

// Component says which of the cluster's Leases an object is.
type Component string

// The components of a cluster that have a Lease.
const (
	ComponentRecord        Component = "record"
	ComponentMember        Component = "member"
	ComponentLeader        Component = "leader"
	ComponentFullSnapshot  Component = "full-snapshot"
	ComponentDeltaSnapshot Component = "delta-snapshot"
)

// RecordName is the name of the cluster record.
func RecordName(cluster string) string { return cluster + "-cluster" }

// LeaderName is the name of the Lease for which the agents next to the raft leader campaign.
func LeaderName(cluster string) string { return cluster + "-leader" }

// FullSnapshotName is the name of the Lease that reports the last full snapshot.
func FullSnapshotName(cluster string) string { return cluster + "-full-snapshot" }

// DeltaSnapshotName is the name of the Lease that reports the last delta snapshot.
func DeltaSnapshotName(cluster string) string { return cluster + "-delta-snapshot" }

// MemberOfURL is the name of the member that is reached at a peer or client URL: the first label of its host, as the
// Service without an address of its own gives each member a name below it. It is empty for what is no such URL.
func MemberOfURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	name, _, below := strings.Cut(u.Hostname(), ".")
	if !below {
		return ""
	}
	return name
}
