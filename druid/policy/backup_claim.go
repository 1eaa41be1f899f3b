package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/internal/rules"
)

// StoreClaim is the PersistentVolumeClaim that holds the backups. Its Name is empty if the store is something else, or
// if druid could not read the claim.
type StoreClaim struct {
	Name string
	// Missing says that it does not exist, or that it is being deleted.
	Missing bool
	// Modes are its access modes, in the words of Kubernetes.
	Modes []string
}

// storeClaim is whether the members can use the claim of the backup store together.
type storeClaim uint8

const (
	storeClaimGood      storeClaim = 1 << iota // nothing speaks against it, or the store is no claim
	storeClaimMissing                          // it does not exist, or it is being deleted
	storeClaimNotShared                        // its access mode does not let all members write to it
)

func (c storeClaim) String() string {
	return rules.Word(c, "good or none", "missing", "not for all members")
}

// The access modes of Kubernetes (core/v1 PersistentVolumeAccessMode).
const (
	modeReadWriteMany = "ReadWriteMany"
	modeReadWriteOnce = "ReadWriteOnce"
)

// storeClaimOf classifies the claim. ReadWriteOnce means one node and not one Pod. So it is good while the Pods are on one node, and where
// the Pods of all members run with it: some drivers do not enforce the mode.
func storeClaimOf(d Desired, o Observed) storeClaim {
	claim, listed := o.StoreClaim, o.listed()
	several := max(d.Replicas, len(listed)) > 1
	switch {
	case !d.Backup || claim.Name == "":
		return storeClaimGood
	case claim.Missing:
		return storeClaimMissing
	case slices.Contains(claim.Modes, modeReadWriteMany):
		return storeClaimGood
	case slices.Contains(claim.Modes, modeReadWriteOnce):
		if several && severalNodes(listed) && !allRunWithStore(o, listed) {
			return storeClaimNotShared
		}
		return storeClaimGood
	case slices.ContainsFunc(claim.Modes, func(mode string) bool { return strings.HasPrefix(mode, modeReadWriteOnce) }) && !several:
		return storeClaimGood // ReadWriteOncePod, for one Pod
	default:
		return storeClaimNotShared
	}
}

// severalNodes says whether the Pods of the members are bound to more than one node.
func severalNodes(listed []Member) bool {
	nodes := map[string]bool{}
	for _, m := range listed {
		if m.On != "" {
			nodes[m.On] = true
		}
	}
	return len(nodes) > 1
}

// allRunWithStore says whether each member runs in a Pod that has the volume of the store.
func allRunWithStore(o Observed, listed []Member) bool {
	return len(o.Unattached) == 0 && !slices.ContainsFunc(listed, func(m Member) bool { return m.Pod != PodLive })
}

// storeClaimAdvice says what is wrong with the claim and what to do, or nothing.
func storeClaimAdvice(d Desired, o Observed) string {
	switch claim := o.StoreClaim; storeClaimOf(d, o) {
	case storeClaimMissing:
		return fmt.Sprintf("PersistentVolumeClaim %s does not exist or is being deleted, and no Pod of a member can start without it. "+
			"Create it, or correct spec.backup.store.directory.claimName", claim.Name)
	case storeClaimNotShared:
		return fmt.Sprintf("PersistentVolumeClaim %s has the access mode %s. Create a claim with ReadWriteMany and name it in "+
			"spec.backup.store.directory.claimName, or use a bucket", claim.Name, strings.Join(claim.Modes, " and "))
	default:
		return ""
	}
}
