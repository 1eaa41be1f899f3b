package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// repository is the name of the image without a tag. The manifests and the chart have the same.
	repository = "ghcr.io/etcd-druid/druid"
	source     = "https://github.com/etcd-druid/druid"
	// programs is where the image has its programs: the manifests of members name them there.
	programDir = "usr/local/bin/"
	// user is the user and the group of the image.
	user = "65532:65532"
)

const (
	passwd = "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
		"nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
	group = "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"
)

// unchanging is the time of all files in the image, so that a layer that did not change has the same digest in the next release.
var unchanging = time.Unix(0, 0).UTC()

// description says what the annotations of the image say. The specification of OCI images has the list of their names.
func (r release) description() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "druid",
		"org.opencontainers.image.description": "druid runs etcd clusters on Kubernetes: the controller, and the agent of each member",
		"org.opencontainers.image.version":     string(r.version),
		"org.opencontainers.image.revision":    r.commit,
		"org.opencontainers.image.created":     r.at.UTC().Format(time.RFC3339),
		"org.opencontainers.image.source":      source,
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

// directory is the entry of a directory and of those above it.
func directories(names ...string) []entry {
	var all []entry
	for _, n := range names {
		all = append(all, entry{name: n + "/", mode: 0o755})
	}
	return all
}

// baseLayer has what every program expects and what changes least.
func baseLayer() []entry {
	return slices.Concat(directories("etc", "etc/ssl", "etc/ssl/certs"), []entry{
		{name: "tmp/", mode: 0o1777},
		{"etc/passwd", plainMode, []byte(passwd)},
		{"etc/group", plainMode, []byte(group)},
		{"etc/ssl/certs/ca-certificates.crt", plainMode, roots()},
	})
}

// layer compresses the files.
func layer(entries []entry) (v1.Layer, error) {
	var content bytes.Buffer
	if err := writeTar(&content, unchanging, entries); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching)
}

// image returns the image of one platform, from its programs by name.
func (r release) image(p platform, content map[string][]byte) (v1.Image, error) {
	layers := [][]entry{baseLayer()}
	for _, names := range imageLayers {
		entries := directories("usr", "usr/local", "usr/local/bin")
		for _, n := range names {
			if len(content[n]) == 0 {
				return nil, fmt.Errorf("image for %s: the program %s is missing", p, n)
			}
			entries = append(entries, entry{programDir + n, programMode, content[n]})
		}
		layers = append(layers, entries)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: v1.Time{Time: r.at.UTC()}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/" + programDir + "druid"}, Labels: r.description(),
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
	})
	for _, entries := range layers {
		var l v1.Layer
		if err == nil {
			l, err = layer(entries)
		}
		if err == nil {
			img, err = mutate.AppendLayers(img, l)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("image for %s: %w", p, err)
	}
	annotated, ok := mutate.Annotations(img, r.description()).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("image for %s: the annotated image is not an image", p)
	}
	return annotated, nil
}

// index returns the image of all platforms.
func (r release) index(images map[platform]v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range slices.SortedFunc(maps.Keys(images), func(a, b platform) int { return strings.Compare(a.String(), b.String()) }) {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: images[p], Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	annotated, ok := mutate.Annotations(index, r.description()).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("image: the annotated index is not an index")
	}
	return annotated, nil
}

// writeImages writes the image of all platforms as an archive of an OCI layout, and an archive for Docker for each platform.
func (r release) writeImages(ctx context.Context, b *builder) (v1.Hash, error) {
	images := map[platform]v1.Image{}
	for _, p := range r.imagePlatforms {
		content := map[string][]byte{}
		for _, name := range slices.Concat(imageLayers...) {
			program, err := b.build(ctx, name, p)
			if err != nil {
				return v1.Hash{}, err
			}
			if content[name], err = os.ReadFile(program.file); err != nil {
				return v1.Hash{}, err
			}
		}
		img, err := r.image(p, content)
		if err != nil {
			return v1.Hash{}, err
		}
		images[p] = img
		if err := r.writeDockerArchive(p, img); err != nil {
			return v1.Hash{}, err
		}
	}
	index, err := r.index(images)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := r.writeLayout(index, b.dir); err != nil {
		return v1.Hash{}, fmt.Errorf("write the OCI layout: %w", err)
	}
	return index.Digest()
}

func (r release) writeDockerArchive(p platform, img v1.Image) error {
	tag, err := name.NewTag(r.imageName(), name.StrictValidation)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("druid-%s-image-%s-%s.tar", r.version, p.os, p.arch), func(w io.Writer) error { return tarball.Write(tag, img, w) })
}

// writeLayout names the image in the layout for containerd and for tools that copy images.
func (r release) writeLayout(index v1.ImageIndex, scratch string) error {
	dir := filepath.Join(scratch, "layout")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{"org.opencontainers.image.ref.name": string(r.version), "io.containerd.image.name": r.imageName()}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	entries, err := filesOf(dir)
	if err != nil {
		return err
	}
	return r.write(r.layoutFile(), func(w io.Writer) error { return writeTar(w, r.at, entries) })
}

func (r release) layoutFile() string { return fmt.Sprintf("druid-%s-image.tar", r.version) }

func (r release) imageName() string { return repository + ":" + string(r.version) }

// filesOf returns the files below a directory in the order of their names.
func filesOf(dir string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		entries = append(entries, entry{filepath.ToSlash(name), plainMode, content})
		return err
	})
	return entries, err
}
