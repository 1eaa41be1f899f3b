// Package images makes the container images that a rig's nodes need, from
// binaries that were built here, under the names that production manifests
// use. There is no registry: the archives are imported into each node.
package images

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/etcd-druid/druid/test/rig/binaries"
)

// Pause is the image that holds a Pod's namespaces; the configuration of containerd names it.
const Pause = "registry.rig/pause:1"

// S3 is the image of an S3 server, which a Pod runs as it would run a vendor's.
const S3 = "registry.rig/s3:1"

// APIServer is the image of a kube-apiserver that keeps its objects in the etcd of a cluster.
const APIServer = "registry.rig/kube-apiserver:1"

// Druid is the name of the product's image.
const Druid = "ghcr.io/etcd-druid/druid:dev"

// binDir and envPath are where images have their programs, and the environment
// that finds them there.
const (
	binDir  = "/usr/local/bin/"
	envPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// DruidVersion is what the binaries in Druid's image say they are.
const DruidVersion = "dev"

// Etcd returns the name of etcd's own image of a version, such as v3.6.1.
func Etcd(version string) string { return "gcr.io/etcd-development/etcd:" + version }

// Maker makes image archives in a cache.
type Maker struct {
	Repo, Cache string
	Bin         binaries.Set
}

// PauseArchive returns the archive of the pause image.
func (m Maker) PauseArchive() (string, error) {
	return m.archive("pause", Spec{
		Ref: Pause, Entrypoint: []string{"/pause"}, User: "65535:65535",
		Files: []File{{"/pause", m.Bin["pause"]}},
	})
}

// S3Archive returns the archive of the image of an S3 server.
func (m Maker) S3Archive() (string, error) { return m.program("s3", S3, "versitygw") }

// APIServerArchive returns the archive of the image of a kube-apiserver.
func (m Maker) APIServerArchive() (string, error) {
	return m.program("kube-apiserver", APIServer, "kube-apiserver")
}

// program returns the archive of an image of one program, which runs as a user without rights.
func (m Maker) program(name, ref, program string) (string, error) {
	return m.archive(name, Spec{
		Ref: ref, Entrypoint: []string{binDir + program}, User: "65532:65532", Env: []string{envPath},
		Files: []File{{binDir + program, m.Bin[program]}},
	})
}

// EtcdArchives returns the archives of etcd's images, one per minor.
func (m Maker) EtcdArchives() ([]string, error) {
	var out []string
	for _, minor := range binaries.EtcdMinors {
		version, err := binaries.EtcdVersion(m.Repo, minor)
		if err != nil {
			return nil, err
		}
		file, err := m.archive("etcd-"+version, etcdSpec(version, func(name string) string {
			return m.Bin[name+"-"+minor]
		}))
		if err != nil {
			return nil, err
		}
		out = append(out, file)
	}
	return out, nil
}

// etcdSpec has the layout of etcd's own image: three binaries in
// /usr/local/bin, the two directories of its Dockerfile, root as the user.
func etcdSpec(version string, bin func(string) string) Spec {
	s := Spec{
		Ref: Etcd(version), Cmd: []string{"/usr/local/bin/etcd"},
		Env:  []string{envPath},
		Dirs: []string{"/var/etcd", "/var/lib/etcd"},
	}
	for _, name := range []string{"etcd", "etcdctl", "etcdutl"} {
		s.Files = append(s.Files, File{binDir + name, bin(name)})
	}
	return s
}

// druidPrograms are the commands below cmd/ that the image has, in binDir as
// in the Dockerfile.
var druidPrograms = []string{"agent", "druid", "launch"}

// DruidArchive builds the product's programs and returns the archive of
// its image. The Go build cache makes it fast when little has changed.
func (m Maker) DruidArchive(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp(m.Cache, "druid-")
	if err != nil {
		return "", fmt.Errorf("build druid's image: %w", err)
	}
	defer os.RemoveAll(dir)
	s := Spec{
		Ref: Druid, Entrypoint: []string{binDir + "druid"}, User: "65532:65532", Env: []string{envPath},
	}
	for _, name := range druidPrograms {
		file := filepath.Join(dir, name)
		if err := binaries.GoBuild(ctx, m.Repo, "./cmd/"+name, "-s -w -X github.com/etcd-druid/druid/internal/cli.version="+DruidVersion, file); err != nil {
			return "", fmt.Errorf("build druid's image: %w", err)
		}
		s.Files = append(s.Files, File{binDir + name, file})
	}
	return m.archive("druid", s)
}

// archive returns the archive of an image, which is named by the content of
// its files and written unless it is there already.
func (m Maker) archive(name string, s Spec) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s %q %q %s %q %q", s.Ref, s.Entrypoint, s.Cmd, s.User, s.Env, s.Dirs)
	for _, f := range s.Files {
		content, err := os.ReadFile(f.Source)
		if err != nil {
			return "", fmt.Errorf("image %s: %w", s.Ref, err)
		}
		fmt.Fprintf(h, "%s %x", f.Path, sha256.Sum256(content))
	}
	dir := filepath.Join(m.Cache, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("image %s: %w", s.Ref, err)
	}
	file := filepath.Join(dir, fmt.Sprintf("%s-%x.tar", name, h.Sum(nil)[:6]))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	tmp, err := os.CreateTemp(dir, name+"-*.tmp")
	if err != nil {
		return "", fmt.Errorf("image %s: %w", s.Ref, err)
	}
	defer os.Remove(tmp.Name())
	if err := Write(tmp, s); err != nil {
		tmp.Close()
		return "", err
	}
	if err := tmp.Close(); err != nil {
		return "", fmt.Errorf("image %s: %w", s.Ref, err)
	}
	return file, os.Rename(tmp.Name(), file)
}
