package manifests

import (
	"slices"
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

func TestPodsAndEndpointsFollowTheStageOfTLS(t *testing.T) {
	for name, tc := range map[string]struct {
		stage    v1alpha1.TLSStage
		pod      v1alpha1.TLSStage
		endpoint string
	}{
		"off":    {v1alpha1.TLSStageOff, v1alpha1.TLSStageOff, "http://demo-client.default.svc:2379"},
		"adding": {v1alpha1.TLSStageAdding, v1alpha1.TLSStageBoth, "http://demo-client.default.svc:2379"},
		"both":   {v1alpha1.TLSStageBoth, v1alpha1.TLSStageBoth, "https://demo-client.default.svc:2379"},
		"on":     {v1alpha1.TLSStageOn, v1alpha1.TLSStageOn, "https://demo-client.default.svc:2379"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := secured()
			for _, p := range []Plane{PlaneClient, PlanePeer} {
				SetTLSStage(cluster, p, tc.stage)
			}
			pod, err := Pod(cluster, "demo-abcde", Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []Plane{PlaneClient, PlanePeer} {
				if got := PodTLS(pod, p); got != tc.pod {
					t.Errorf("the Pod uses TLS of %s as %s, want %s", p, got, tc.pod)
				}
			}
			if got := Endpoints(cluster); !slices.Equal(got, []string{tc.endpoint}) {
				t.Errorf("endpoints are %q, want %s", got, tc.endpoint)
			}
			if planes := Planes(cluster); len(planes) != 2 {
				t.Errorf("planes are %q: druid issues the certificates until no member uses them", planes)
			}
		})
	}
}

func TestEveryStageHasPodsOfItsOwn(t *testing.T) {
	hashes := map[string]v1alpha1.TLSStage{}
	for _, stage := range []v1alpha1.TLSStage{v1alpha1.TLSStageOff, v1alpha1.TLSStageBoth, v1alpha1.TLSStageOn} {
		cluster := secured()
		SetTLSStage(cluster, PlanePeer, stage)
		hash, err := SpecHash(cluster)
		if err != nil {
			t.Fatal(err)
		}
		if other, known := hashes[hash]; known {
			t.Errorf("Pods of the stages %s and %s are the same", other, stage)
		}
		hashes[hash] = stage
	}
	on, adding := secured(), secured()
	SetTLSStage(adding, PlanePeer, v1alpha1.TLSStageAdding)
	both := secured()
	SetTLSStage(both, PlanePeer, v1alpha1.TLSStageBoth)
	if a, _ := SpecHash(adding); a == "" || hashes[a] != v1alpha1.TLSStageBoth {
		t.Error("a Pod that adds TLS differs from one that has both: it would be replaced once more")
	}
	if h, _ := SpecHash(on); hashes[h] != v1alpha1.TLSStageOn {
		t.Error("without a stage in the status, a Pod is not as the spec says")
	}
}

// TestFormerTLSKeptWhileUsed: a former TLS is kept until members do not use it.
// What members use stays known after it was removed from the spec, and a plane with another source arrives at Off first.
func TestFormerTLSKeptWhileUsed(t *testing.T) {
	cluster := secured()
	before := TLSOf(cluster)
	for name, tc := range map[string]struct {
		after              *v1alpha1.TLSSpec
		client, peer       bool
		clientGoal, peerTo v1alpha1.TLSStage
	}{
		"all is removed":    {nil, true, true, v1alpha1.TLSStageOff, v1alpha1.TLSStageOff},
		"peers are removed": {&v1alpha1.TLSSpec{Client: before.Client}, false, true, v1alpha1.TLSStageOn, v1alpha1.TLSStageOff},
		"nothing changes":   {&before, false, false, v1alpha1.TLSStageOn, v1alpha1.TLSStageOn},
		"peers of another owner": {&v1alpha1.TLSSpec{Client: before.Client, Peer: &v1alpha1.PeerTLS{Auto: &v1alpha1.AutoTLS{}}}, false, true,
			v1alpha1.TLSStageOn, v1alpha1.TLSStageOff},
		"another mode": {&v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{SecretRef: before.Client.SecretRef, Auto: before.Client.Auto,
			Mode: v1alpha1.TLSServerOnly},
			Peer: before.Peer}, true, false, v1alpha1.TLSStageOff, v1alpha1.TLSStageOn},
		"plain text is allowed": {&v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{Auto: before.Client.Auto, Plaintext: v1alpha1.PlaintextAllow}, Peer: before.Peer},
			false, false, v1alpha1.TLSStageBoth, v1alpha1.TLSStageOn},
	} {
		t.Run(name, func(t *testing.T) {
			former := FormerTLS(before, tc.after)
			if (former.Client != nil) != tc.client || (former.Peer != nil) != tc.peer {
				t.Errorf("kept is %+v", former)
			}
			edited := plain()
			edited.Spec.TLS = tc.after
			if err := edited.Status.KeepFormer(former); err != nil {
				t.Fatal(err)
			}
			if got := TLSTarget(edited, PlaneClient); got != tc.clientGoal {
				t.Errorf("clients arrive at %s, want %s", got, tc.clientGoal)
			}
			if got := TLSTarget(edited, PlanePeer); got != tc.peerTo {
				t.Errorf("peers arrive at %s, want %s", got, tc.peerTo)
			}
			if got := TLSOf(edited); tc.peer && (got.Peer == nil || got.Peer.SecretRef == nil || got.Peer.SecretRef.Name != "peers") {
				t.Errorf("the members use %+v, and druid mounts %+v", before.Peer, got.Peer)
			}
		})
	}
}
