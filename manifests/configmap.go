package manifests

import (
	"fmt"
	"strings"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// configMap returns the ConfigMap with the configuration that the agents reload without a restart.
func configMap(cluster *v1alpha1.EtcdCluster, reloadable config.Reloadable) (*corev1ac.ConfigMapApplyConfiguration, error) {
	backup, err := Backup(cluster)
	if err != nil {
		return nil, err
	}
	reloadable.Backup = backup
	if cluster.Spec.LogLevel != "" {
		reloadable.LogLevel = strings.ToLower(string(cluster.Spec.LogLevel))
	}
	reloadable.Defragmentation = defragmentation(cluster.Spec.Defragmentation)
	reloadable.RemoveExternalMembers = RemovesExternalMembers(cluster)
	reloadable.Issuers = issuers(cluster)
	reloadable.APIClients = apiClients(cluster)
	reloadable.Auth = auth(cluster)
	if cluster.Spec.Auth == nil && cluster.Status.Auth == nil {
		reloadable.Generation = 0 // nothing in it depends on the order of changes
	}
	raw, err := reloadable.YAML()
	if err != nil {
		return nil, fmt.Errorf("encode the agents' configuration of %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	return corev1ac.ConfigMap(AgentName(cluster.Name), cluster.Namespace).
		WithLabels(labelled(cluster, Labels(cluster.Name))).
		WithAnnotations(annotated(cluster, nil)).
		WithOwnerReferences(ownerReference(cluster)).
		WithData(map[string]string{config.ConfigFile: string(raw)}), nil
}

// apiClients returns the common names of the clients that may have the agents act.
func apiClients(cluster *v1alpha1.EtcdCluster) (names []string) {
	client := TLSOf(cluster).Client
	if client == nil {
		return nil
	}
	for _, c := range client.Clients {
		if c.AgentAPI {
			names = append(names, c.CommonName)
		}
	}
	return names
}

// issuers returns the certificate authorities that the members of the formed cluster use.
func issuers(cluster *v1alpha1.EtcdCluster) (i config.Issuers) {
	if status := cluster.Status.TLS; status != nil {
		i.Client, i.Peer = issuersOf(status.Client), issuersOf(status.Peer)
	}
	i.Provided = provided(cluster)
	return i
}

// provided says for which planes a user provides the certificates.
func provided(cluster *v1alpha1.EtcdCluster) string {
	var planes []string
	for _, s := range tlsSources(cluster) {
		if s.auto == nil {
			planes = append(planes, string(s.plane))
		}
	}
	return strings.Join(planes, ",")
}

// IssuersNoted returns the authorities of a user's certificates that the status of a plane lists.
func IssuersNoted(cluster *v1alpha1.EtcdCluster, p Plane) []string {
	status := cluster.Status.TLS
	switch {
	case status == nil:
		return nil
	case p == PlanePeer && status.Peer != nil:
		return status.Peer.Issuers
	case p == PlaneClient && status.Client != nil:
		return status.Client.Issuers
	default:
		return nil
	}
}

// issuersOf returns the authorities of certificates that a member may start with: those of druid that sign or have signed, or
// those that were noted of a user's certificates.
func issuersOf(plane *v1alpha1.TLSPlaneStatus) string {
	if plane == nil {
		return ""
	}
	if len(plane.Trusted) == 0 {
		return strings.Join(plane.Issuers, ",")
	}
	var all []string
	for _, authority := range plane.Trusted {
		all = append(all, authority.Fingerprint)
		if authority.Fingerprint == plane.Authority {
			break // those after it have signed nothing yet
		}
	}
	return strings.Join(all, ",")
}

// defragmentation returns the configuration of defragmentation, which is on by default.
func defragmentation(spec *v1alpha1.DefragmentationSpec) config.Defragmentation {
	d := config.DefaultDefragmentation()
	d.Enabled = true
	if spec == nil {
		return d
	}
	d.Enabled = !spec.Disabled
	d.Schedule, d.TimeZone = spec.Schedule, spec.TimeZone
	if spec.Window != nil {
		d.Window = config.Duration(spec.Window.Duration)
	}
	if spec.MinFreePercent != nil {
		d.MinFreePercent = int64(*spec.MinFreePercent)
	}
	if spec.MinFreeBytes != nil {
		d.MinFreeBytes = spec.MinFreeBytes.Value()
	}
	if spec.OutOfSpace != "" {
		d.OutOfSpace = config.OutOfSpace(spec.OutOfSpace)
	}
	return d
}

// joined returns how the cluster joins a running one, or nil for a cluster that forms by itself.
func joined(cluster *v1alpha1.EtcdCluster) *v1alpha1.JoinSpec {
	if cluster.Spec.Bootstrap == nil {
		return nil
	}
	return cluster.Spec.Bootstrap.Join
}

// join returns where the first start of the cluster finds the running one. It is empty for a cluster that forms by
// itself.
func join(cluster *v1alpha1.EtcdCluster) string {
	if spec := joined(cluster); spec != nil {
		endpoints := make([]string, len(spec.Endpoints))
		for i, endpoint := range spec.Endpoints {
			endpoints[i] = string(endpoint)
		}
		return config.JoinOf(endpoints)
	}
	return ""
}

// joinSecret returns the name of the Secret for the client port of the cluster to join, or nothing if that port has no TLS.
func joinSecret(cluster *v1alpha1.EtcdCluster) string {
	if spec := joined(cluster); spec != nil && spec.TLS != nil {
		return spec.TLS.SecretRef.Name
	}
	return ""
}

// Joins reports whether the first member of the cluster joins a running one.
func Joins(cluster *v1alpha1.EtcdCluster) bool { return joined(cluster) != nil }

// RemovesExternalMembers reports whether the members of the joined cluster may be removed.
func RemovesExternalMembers(cluster *v1alpha1.EtcdCluster) bool {
	spec := joined(cluster)
	return spec != nil && spec.RemoveExternalMembers
}
