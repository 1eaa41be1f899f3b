package v1alpha1

// MaxDefaultQuotaBytes is the largest quota of a database that the spec does not set: that of etcd itself
// (etcd: server/storage, DefaultQuotaBytes).
const MaxDefaultQuotaBytes = 2 << 30

// QuotaBytes returns the quota that the spec sets, or half the volume up to MaxDefaultQuotaBytes. The other half is for
// the write-ahead log and for the copy during a defragmentation. etcd must reach its quota before the volume is full.
func (s *EtcdClusterSpec) QuotaBytes() int64 {
	if quota := s.Etcd.QuotaBackendBytes; quota != nil {
		return quota.Value()
	}
	return min(s.Storage.Size.Value()/2, MaxDefaultQuotaBytes)
}
