package leases

import "fmt"

// Snapshots say after how many raft entries the member's etcd takes a snapshot of its log, and of which Pod the member's agent said so:
// another Pod may have another setting. The zero value is not known.
type Snapshots struct {
	Entries uint64
	PodUID  string
}

// String writes it as ParseSnapshots reads it.
func (s Snapshots) String() string {
	if s.PodUID == "" {
		return ""
	}
	return fmt.Sprintf("entries=%d,pod=%s", s.Entries, s.PodUID)
}

// ParseSnapshots reads an annotation. What cannot be read is not known.
func ParseSnapshots(text string) Snapshots {
	var s Snapshots
	if _, err := fmt.Sscanf(text, "entries=%d,pod=%s", &s.Entries, &s.PodUID); err != nil || s.String() != text {
		return Snapshots{}
	}
	return s
}
