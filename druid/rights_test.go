package druid

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/etcd-druid/druid/test/env"
)

// used are the rights that the druids of all tests used. Those with a clock of the test have no cache, so they also get and list what a
// cache would hold. The API server refuses what rbac.yaml does not grant, so a druid that lacks a right also fails its test.
var used env.Rights

// unasked are rights that a druid needs although its requests in the tests do not show it.
var unasked = []rbacv1.PolicyRule{
	// An API server that enforces the permissions of owner references refuses another request without it.
	{APIGroups: []string{"etcd.druid.dev"}, Resources: []string{"etcdclusters/finalizers"}, Verbs: []string{"update"}},
	// client-go patches an Event that occurs again. Which one does so in the tests depends on time.
	{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"patch"}},
}

// checkRights compares the rights of the install with those that the tests used. It returns the exit code.
func checkRights() int {
	granted, err := grantedRights()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	used.Add(unasked...)
	return used.Compare(granted, "druid", "manifests/install/rbac.yaml")
}

// grantedRights are those of all roles of the install.
func grantedRights() (*env.Rights, error) {
	raw, err := os.ReadFile(filepath.Join("..", "manifests", "install", "rbac.yaml"))
	if err != nil {
		return nil, err
	}
	granted := &env.Rights{}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
		var role rbacv1.ClusterRole // a Role has the same rules
		switch err := decoder.Decode(&role); {
		case errors.Is(err, io.EOF):
			return granted, nil
		case err != nil:
			return nil, fmt.Errorf("read a role of the install: %w", err)
		}
		granted.Add(role.Rules...)
	}
}
