package manifests

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// auth returns the users and roles in etcd for the agents, without passwords, or nil if druid does not manage them.
func auth(cluster *v1alpha1.EtcdCluster) *config.Auth {
	spec := cluster.Spec.Auth
	if spec == nil {
		return nil
	}
	a := &config.Auth{Enabled: spec.Enabled && authPossible(cluster)}
	if spec.PasswordsSecretRef != nil {
		a.Passwords = config.PasswordsDir
	}
	for _, user := range spec.Users {
		a.Users = append(a.Users, config.AuthUser{
			Name: cmp.Or(user.CertificateCN, user.Name), PasswordKey: user.PasswordKey, Roles: user.Roles,
		})
	}
	for _, role := range spec.Roles {
		r := config.AuthRole{Name: role.Name}
		for _, p := range role.Permissions {
			r.Permissions = append(r.Permissions, permission(p))
		}
		a.Roles = append(a.Roles, r)
	}
	return a
}

// authPossible says whether every agent can log in by its certificate. While TLS is being turned on, some cannot, and authentication
// would shut them out. What is on stays on.
func authPossible(cluster *v1alpha1.EtcdCluster) bool {
	return cluster.Status.Auth != nil && cluster.Status.Auth.Enabled ||
		clientsSecure(cluster) && TLSStage(cluster, PlanePeer) == v1alpha1.TLSStageOn
}

// AuthConfig identifies the users and roles of the spec as the agents report them. It is empty if druid does not manage them.
func AuthConfig(cluster *v1alpha1.EtcdCluster) string { return auth(cluster).Hash() }

// permission returns the range of keys as etcd has it.
func permission(p v1alpha1.AuthPermission) config.AuthPermission {
	permission := config.AuthPermission{
		Key: []byte(p.Key), RangeEnd: []byte(p.RangeEnd), Read: p.Type != v1alpha1.AuthWrite, Write: p.Type != v1alpha1.AuthRead,
	}
	switch {
	case p.Prefix && p.Key == "":
		permission.Key, permission.RangeEnd = []byte{0}, []byte{0} // etcd's range of all keys
	case p.Prefix:
		permission.RangeEnd = afterPrefix(p.Key)
	}
	return permission
}

// afterPrefix returns the first key that is greater than all keys with the prefix.
func afterPrefix(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0} // no key is greater
}

// passwordVolumes returns the volume with the passwords of users. The Secret is optional, so that a Secret that is deleted
// prevents no Pod from starting: the agent reports what is missing.
func passwordVolumes(cluster *v1alpha1.EtcdCluster) []corev1.Volume {
	name := passwordsSecret(cluster)
	if name == "" {
		return nil
	}
	mode := int32(0o440)
	return []corev1.Volume{{Name: volumePasswords, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: name, DefaultMode: &mode, Optional: new(true),
	}}}}
}

func passwordMounts(cluster *v1alpha1.EtcdCluster) []corev1.VolumeMount {
	if passwordsSecret(cluster) == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumePasswords, MountPath: config.PasswordsDir, ReadOnly: true}}
}

// passwordsSecret returns the name of the Secret with passwords, empty if there is none.
func passwordsSecret(cluster *v1alpha1.EtcdCluster) string {
	if cluster.Spec.Auth == nil || cluster.Spec.Auth.PasswordsSecretRef == nil {
		return ""
	}
	return cluster.Spec.Auth.PasswordsSecretRef.Name
}
