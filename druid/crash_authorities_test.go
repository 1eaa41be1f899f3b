package druid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// replacements are the scenarios of a certificate authority that is replaced, with one member. Its Pod ends when druid deletes it.
var replacements = map[string]scenario{
	"another certificate authority": {
		replicas: 1, formed: true, secured: true, ends: true,
		prepare: func(s *stage, _ []string) {
			s.patchCluster(`{"spec":{"tls":{"client":{"trustHold":"1s"}}}}`)
			s.within("issue the first certificates", s.beat, func() error { return s.trustsAlone(1) })
		},
		change: func(s *stage, _ []string) {
			s.patchCluster(`{"metadata":{"annotations":{"` + v1alpha1.RotateCAAnnotation + `":"2026-11-25"}}}`)
		},
		reached: func(s *stage, names []string) error { return errors.Join(s.trustsAlone(2), s.serving(names[0])) },
	},
}

// trustsAlone says what is missing until both planes trust the authority of that generation and no other, and use its certificates.
func (s *stage) trustsAlone(generation int32) error {
	cluster := s.cluster()
	for _, p := range bothPlanes {
		status := manifests.PlaneStatus(cluster, p)
		if status == nil || status.Phase != v1alpha1.TLSStable || len(status.Trusted) != 1 || status.Trusted[0].Generation != generation {
			return fmt.Errorf("the status of plane %s is %+v", p, status)
		}
		trusted, issuer, err := s.secretOf(p)
		if err != nil {
			return err
		}
		if len(trusted) != 1 || trusted[0] != status.Authority || issuer != status.Authority {
			return fmt.Errorf("the Secret of plane %s trusts %q and is issued by %q, want %s", p, trusted, issuer, status.Authority)
		}
	}
	return nil
}

// secretOf returns from the Secret of the members the fingerprints of the authorities, and of the issuer of the certificate.
func (s *stage) secretOf(p manifests.Plane) (trusted []string, issuer string, err error) {
	var secret corev1.Secret
	if err := s.fetch(manifests.CertificatesName("demo", p), &secret); err != nil {
		return nil, "", err
	}
	authorities, err := pki.Bundle(secret.Data[manifests.KeyAuthorities])
	if err != nil {
		return nil, "", err
	}
	leaf, err := pki.Leaf(pairIn(&secret))
	if err != nil {
		return nil, "", err
	}
	for _, a := range authorities {
		trusted = append(trusted, pki.Fingerprint(a))
		if leaf.CheckSignatureFrom(a) == nil {
			issuer = pki.Fingerprint(a)
		}
	}
	return trusted, issuer, nil
}

// certified is what the etcd in a Pod uses. It reads the authorities when it starts, and certificates again at any time.
type certified struct {
	pod    types.UID
	planes map[manifests.Plane]leases.TLSPlane
}

// useCertificates is what the agent of the member does with the Secrets, and the kubelet with a new Pod. No certificate may come that the
// running etcd does not trust.
func (s *stage) useCertificates(name string) {
	s.Helper()
	var pod corev1.Pod
	if s.fetch(name, &pod) != nil || pod.DeletionTimestamp != nil {
		return
	}
	if pod.Status.Phase != corev1.PodRunning {
		s.kubelet(name, true)
	}
	runs := s.certified[name]
	starts := runs.pod != pod.UID
	if starts {
		runs = certified{pod.UID, map[manifests.Plane]leases.TLSPlane{}}
	}
	for _, p := range bothPlanes {
		trusted, issuer, err := s.secretOf(p)
		if err != nil {
			return // druid has not issued it yet
		}
		plane := runs.planes[p]
		if starts {
			plane = leases.TLSPlane{Trusted: strings.Join(trusted, ","), NotAfter: time.Now().Add(time.Hour).Truncate(time.Second)}
		}
		if plane.Issuer = issuer; !slices.Contains(strings.Split(plane.Trusted, ","), issuer) {
			s.Fatalf("plane %s: the certificate is of %q, and the running etcd trusts %q", p, issuer, plane.Trusted)
		}
		runs.planes[p] = plane
	}
	if s.certified == nil {
		s.certified = map[string]certified{}
	}
	s.certified[name] = runs
	s.reportPlanes(name, runs.planes)
}

// reportPlanes reports what the etcd of the member uses.
func (s *stage) reportPlanes(name string, planes map[manifests.Plane]leases.TLSPlane) {
	s.Helper()
	reported := leases.TLS{}.With("client", planes[manifests.PlaneClient]).With("peer", planes[manifests.PlanePeer])
	s.eventually("report "+name, func() error {
		_, err := s.store("demo").PatchMember(s.Context(), name, leases.MemberPatch{Member: leases.Member{TLS: reported}})
		return err
	})
}
