package manifests

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// managed is a cluster with TLS, users and roles.
func managed() *v1alpha1.EtcdCluster {
	cluster := secured()
	cluster.Spec.Auth = &v1alpha1.AuthSpec{
		Enabled: true, PasswordsSecretRef: &v1alpha1.SecretRef{Name: "users"},
		Users: []v1alpha1.AuthUser{
			{Name: "app", PasswordKey: "app-password", Roles: []string{"app"}},
			{Name: "api", CertificateCN: "kube-apiserver", Roles: []string{"root"}},
		},
		Roles: []v1alpha1.AuthRole{{Name: "app", Permissions: []v1alpha1.AuthPermission{
			{Key: "/app/", Prefix: true, Type: v1alpha1.AuthReadWrite}, {Key: "/a", RangeEnd: "/b", Type: v1alpha1.AuthRead}, {Key: "/lock", Type: v1alpha1.AuthWrite},
		}}},
	}
	return cluster
}

func TestOnlyTheAgentHasThePasswords(t *testing.T) {
	pod, err := Pod(managed(), member, options())
	if err != nil {
		t.Fatal(err)
	}
	var volume *corev1.SecretVolumeSource
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil {
			volume = v.Secret
		}
	}
	if volume == nil || volume.SecretName != "users" || volume.Optional == nil || !*volume.Optional {
		t.Fatalf("the volume is %+v, want the optional Secret users", volume)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		mounts := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == config.PasswordsDir })
		if mounts != (c.Name == ContainerAgent) {
			t.Errorf("container %s has the passwords: %t", c.Name, mounts)
		}
	}
}

func TestUsersAndRolesReachTheAgents(t *testing.T) {
	cluster := managed()
	applied, err := configMap(cluster, config.DefaultReloadable())
	if err != nil {
		t.Fatal(err)
	}
	r, err := config.ParseReloadable([]byte(applied.Data[config.ConfigFile]))
	if err != nil {
		t.Fatal(err)
	}
	got := r.Auth
	if got == nil || !got.Enabled || got.Passwords != config.PasswordsDir || len(got.Users) != 2 || got.Users[1].Name != "kube-apiserver" ||
		got.Users[0].PasswordKey != "app-password" {
		t.Fatalf("the agents get %+v", got)
	}
	if got.Hash() != AuthConfig(cluster) || got.Hash() == "" {
		t.Errorf("the agents report %q, and druid compares it with %q", got.Hash(), AuthConfig(cluster))
	}
	var ranges []string
	for _, p := range got.Roles[0].Permissions {
		ranges = append(ranges, strings.Join([]string{string(p.Key), string(p.RangeEnd), map[bool]string{true: "r"}[p.Read] + map[bool]string{true: "w"}[p.Write]},
			" "))
	}
	if want := []string{"/app/ /app0 rw", "/a /b r", "/lock  w"}; !slices.Equal(ranges, want) {
		t.Errorf("permissions are %q, want %q", ranges, want)
	}
}

func TestPrefixesBecomeRangesOfEtcd(t *testing.T) {
	for prefix, want := range map[string]string{"": "\x00", "a": "b", "a\xff": "b", "\xff": "\x00"} {
		p := permission(v1alpha1.AuthPermission{Key: prefix, Prefix: true})
		if string(p.RangeEnd) != want || len(p.Key) == 0 {
			t.Errorf("prefix %q is the range %q to %q", prefix, p.Key, p.RangeEnd)
		}
	}
}

// Every level of the API is one that the agents accept, and a cluster that an older druid stored has none.
func TestTheLevelOfTheLogReachesTheAgents(t *testing.T) {
	for level, want := range map[v1alpha1.LogLevel]string{
		"": "info", v1alpha1.LogDebug: "debug", v1alpha1.LogInfo: "info", v1alpha1.LogWarn: "warn", v1alpha1.LogError: "error",
	} {
		cluster := plain()
		cluster.Spec.LogLevel = level
		applied, err := configMap(cluster, config.DefaultReloadable())
		if err != nil {
			t.Fatal(err)
		}
		r, err := config.ParseReloadable([]byte(applied.Data[config.ConfigFile]))
		if err != nil {
			t.Fatal(err)
		}
		if r.LogLevel != want {
			t.Errorf("logLevel %q: the agents get %q, want %q", level, r.LogLevel, want)
		}
	}
}

// TestConfigWithoutAuthHasNoGeneration: without auth the configuration has no generation.
// A cluster whose authentication druid does not manage has no trace of it in the configuration of the agents.
func TestConfigWithoutAuthHasNoGeneration(t *testing.T) {
	reloadable := config.DefaultReloadable()
	reloadable.Generation = 7
	applied, err := configMap(plain(), reloadable)
	if err != nil {
		t.Fatal(err)
	}
	if text := applied.Data[config.ConfigFile]; strings.Contains(text, "generation") || strings.Contains(text, "auth") {
		t.Errorf("the configuration is\n%s", text)
	}
}
