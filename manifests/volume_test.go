package manifests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestNoQuotaAboveTheVolume(t *testing.T) {
	claim := func(request, capacity string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)}
		if capacity != "" {
			c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
		}
		return c
	}
	tests := map[string]struct {
		quota string
		claim *corev1.PersistentVolumeClaim
		want  int64
		// same: the Pod bears the hash of what the spec asks.
		same bool
	}{
		"no claim is known":                        {claim: nil, want: 2 << 30, same: true},
		"the volume is as large as asked":          {claim: claim("4Gi", "4Gi"), want: 2 << 30, same: true},
		"the volume is larger":                     {claim: claim("4Gi", "100Gi"), want: 2 << 30, same: true},
		"there is no volume yet":                   {claim: claim("4Gi", ""), want: 2 << 30, same: true},
		"there is no volume yet, it will be small": {claim: claim("1Gi", ""), want: 512 << 20},
		"the volume has not grown yet":             {claim: claim("4Gi", "1Gi"), want: 512 << 20},
		"a quota that fits":                        {quota: "900Mi", claim: claim("4Gi", "1Gi"), want: 900 << 20, same: true},
		"a quota of the whole volume":              {quota: "1Gi", claim: claim("4Gi", "1Gi"), want: 1 << 30, same: true},
		"a quota that does not fit":                {quota: "3Gi", claim: claim("4Gi", "1Gi"), want: 512 << 20},
		"a quota that does, when the volume grew":  {quota: "3Gi", claim: claim("4Gi", "4Gi"), want: 3 << 30, same: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := plain()
			cluster.Spec.Storage.Size = resource.MustParse("4Gi")
			if test.quota != "" {
				cluster.Spec.Etcd.QuotaBackendBytes = new(resource.MustParse(test.quota))
			}
			asked, err := SpecHash(cluster)
			if err != nil {
				t.Fatal(err)
			}
			before := cluster.DeepCopy()
			seen := OnVolume(cluster, test.claim)
			if got := seen.Spec.QuotaBytes(); got != test.want {
				t.Errorf("quota is %d, want %d", got, test.want)
			}
			if cluster.Spec.Storage.Size.Cmp(before.Spec.Storage.Size) != 0 || cluster.Spec.Etcd.QuotaBackendBytes == nil != (test.quota == "") {
				t.Errorf("the cluster itself was changed: %+v", cluster.Spec)
			}
			pod, err := Pod(seen, member, options())
			if err != nil {
				t.Fatal(err)
			}
			if same := pod.Annotations[AnnotationSpecHash] == asked; same != test.same {
				t.Errorf("the Pod bears the hash of the spec: %t, want %t", same, test.same)
			}
		})
	}
}

func TestPodReportsForWhichSizeItWasMounted(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	pod, err := Pod(plain(), member, options())
	if err != nil {
		t.Fatal(err)
	}
	MountedFor(pod, claim)
	if IsMountedFor(pod, claim) {
		t.Error("a Pod was marked although no volume waits for it")
	}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
		{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue},
	}
	MountedFor(pod, claim)
	if !IsMountedFor(pod, claim) {
		t.Error("the Pod does not report that its volume was mounted for this size")
	}
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("3Gi")
	if IsMountedFor(pod, claim) {
		t.Error("the Pod is taken for one of a size that was requested after it was made")
	}
}
