package plan

import "fmt"

// Timings are the clocks of the cluster that decide how soon a fault is seen.
type Timings struct {
	// Profile is the name under which the timings are chosen.
	Profile string
	// NodeMonitorGrace and NodeMonitorPeriod make a silent node NotReady.
	NodeMonitorGrace, NodeMonitorPeriod string
	// NodeStatusUpdate and NodeLeaseSeconds pace the kubelet's signs of life.
	NodeStatusUpdate string
	NodeLeaseSeconds int
	// DNSTTLSeconds is how long the cluster's DNS caches, NXDOMAIN too.
	DNSTTLSeconds int
}

// Fast makes faults visible in seconds; Production has the defaults of
// Kubernetes 1.36 and of the CoreDNS configuration that kubeadm installs.
var (
	Fast = Timings{
		Profile:          "fast",
		NodeMonitorGrace: "16s", NodeMonitorPeriod: "2s",
		NodeStatusUpdate: "4s", NodeLeaseSeconds: 16,
		DNSTTLSeconds: 1,
	}
	Production = Timings{
		Profile:          "production",
		NodeMonitorGrace: "50s", NodeMonitorPeriod: "5s",
		NodeStatusUpdate: "10s", NodeLeaseSeconds: 40,
		DNSTTLSeconds: 30,
	}
)

// ProfileTimings returns the timings of a profile; the empty name is fast.
func ProfileTimings(profile string) (Timings, error) {
	switch profile {
	case "", Fast.Profile:
		return Fast, nil
	case Production.Profile:
		return Production, nil
	}
	return Timings{}, fmt.Errorf("profile %q: choose %q or %q", profile, Fast.Profile, Production.Profile)
}
