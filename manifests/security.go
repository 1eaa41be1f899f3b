package manifests

import (
	corev1 "k8s.io/api/core/v1"
)

// nonRoot is the user and the group of everything that druid runs: the nonroot user of the distroless images.
const nonRoot = int64(65532)

// podSecurityContext and containerSecurityContext together meet the Restricted level of the Pod Security Standards.
func podSecurityContext() *corev1.PodSecurityContext {
	onRootMismatch := corev1.FSGroupChangeOnRootMismatch
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true),
		RunAsUser:    new(nonRoot),
		RunAsGroup:   new(nonRoot),
		FSGroup:      new(nonRoot),
		// Without it the kubelet walks the whole volume before each start.
		FSGroupChangePolicy: &onRootMismatch,
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func containerSecurityContext() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
