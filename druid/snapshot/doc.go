// Package snapshot owns the controller of EtcdSnapshots. It requests each backup on a snapshot Lease of the cluster, and
// reports in the status what the leader's agent answers.
//
// It never touches a backup. It deletes an EtcdSnapshot only after its time to live, and holds one only while its backup
// is to be deleted with it. It writes Leases with package leases only.
package snapshot
