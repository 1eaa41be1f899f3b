package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// sbomType is the media type of an SBOM, by the specification of CycloneDX.
const sbomType types.MediaType = "application/vnd.cyclonedx+json"

// push copies the image of a release to a repository under the tag of its version, and the SBOM as a referrer of the image. The
// credentials are those of `docker login`.
func push(ctx context.Context, dir string, v version, repository string) (string, error) {
	if err := checkSums(dir); err != nil {
		return "", err
	}
	r := release{version: v}
	tag, err := name.NewTag(repository + ":" + string(v))
	if err != nil {
		return "", fmt.Errorf("push to %s: %w", repository, err)
	}
	scratch, err := os.MkdirTemp("", "druid-push-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	index, err := readLayout(filepath.Join(dir, r.layoutFile()), scratch)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", r.layoutFile(), err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return "", fmt.Errorf("push to %s: %w", tag, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	sbom, err := os.ReadFile(filepath.Join(dir, r.sbomFile()))
	if err != nil {
		return "", err
	}
	if err := attach(tag.Context(), index, sbom, options); err != nil {
		return "", fmt.Errorf("attach the SBOM to %s: %w", tag, err)
	}
	return tag.Context().Digest(digest.String()).String(), nil
}

// attach writes the SBOM as an artifact whose subject is the image.
func attach(repository name.Repository, index v1.ImageIndex, sbom []byte, options []remote.Option) error {
	artifact, err := mutate.AppendLayers(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbomType), static.NewLayer(sbom, sbomType))
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	size, err := index.Size()
	if err != nil {
		return err
	}
	subject := v1.Descriptor{MediaType: types.OCIImageIndex, Digest: digest, Size: size}
	img, ok := mutate.Subject(artifact, subject).(v1.Image)
	if !ok {
		return errors.New("the artifact with a subject is not an image")
	}
	own, err := img.Digest()
	if err != nil {
		return err
	}
	return remote.Write(repository.Digest(own.String()), img, options...)
}

// readLayout unpacks the archive of an OCI layout to a directory, and returns its only image.
func readLayout(archive, dir string) (v1.ImageIndex, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for reader := tar.NewReader(f); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = root.MkdirAll(filepath.Dir(header.Name), 0o755)
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(reader)
		}
		if err == nil {
			err = root.WriteFile(header.Name, content, plainMode)
		}
		if err != nil {
			return nil, err
		}
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("the layout has %d images, want 1", len(manifest.Manifests))
	}
	return all.ImageIndex(manifest.Manifests[0].Digest)
}
