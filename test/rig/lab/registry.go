package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etcd-druid/druid/test/rig/node"
)

// UseRegistry lets containerd of all nodes pull the images of a registry, such
// as "ghcr.io", from an address of the rig's network, without TLS and from
// nowhere else. containerd reads this at each pull.
func (l *Lab) UseRegistry(registry, address string) error {
	// containerd 1.6 takes no file without hosts. The server is what it tries after them.
	hosts := fmt.Appendf(nil, "server = %[1]q\n[host.%[1]q]\ncapabilities = [\"pull\", \"resolve\"]\n", "http://"+address)
	for _, name := range l.Nodes() {
		file := node.RegistryFile(l.plan, name, registry)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("name the address of registry %s on node %s: %w", registry, name, err)
		}
		if err := os.WriteFile(file, hosts, 0o644); err != nil {
			return fmt.Errorf("name the address of registry %s on node %s: %w", registry, name, err)
		}
	}
	return nil
}

// ForgetRegistry ends what UseRegistry began.
func (l *Lab) ForgetRegistry(registry string) error {
	for _, name := range l.Nodes() {
		if err := os.Remove(node.RegistryFile(l.plan, name, registry)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the address of registry %s from node %s: %w", registry, name, err)
		}
	}
	return nil
}
