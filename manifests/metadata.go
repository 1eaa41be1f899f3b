package manifests

import (
	"maps"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// labelled are druid's own labels with what the user wants next to them. Own keys win: druid finds and selects by them.
func labelled(cluster *v1alpha1.EtcdCluster, own map[string]string) map[string]string {
	if cluster.Spec.AdditionalMetadata == nil {
		return own
	}
	all := plainStrings(cluster.Spec.AdditionalMetadata.Labels)
	maps.Copy(all, own)
	return all
}

// annotated is the same for annotations, nil for none.
func annotated(cluster *v1alpha1.EtcdCluster, own map[string]string) map[string]string {
	if cluster.Spec.AdditionalMetadata == nil {
		return own
	}
	all := plainStrings(cluster.Spec.AdditionalMetadata.Annotations)
	maps.Copy(all, own)
	if len(all) == 0 {
		return nil
	}
	return all
}

func plainStrings[V ~string](values map[string]V) map[string]string {
	all := make(map[string]string, len(values))
	for k, v := range values {
		all[k] = string(v)
	}
	return all
}
