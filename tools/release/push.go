package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// sbomType is the media type of an SBOM, by the specification of CycloneDX.
const sbomType types.MediaType = "application/vnd.cyclonedx+json"

// push copies the image of a release to a repository under the tag of its version, its signature where cosign looks for it, and the SBOM
// as a referrer of the image. The credentials are those of `docker login`. It refuses an image without the platforms that it wants, and a
// tag that has another image.
func push(ctx context.Context, dir string, v version, repository string, want []platform) (string, error) {
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
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	if err := complete(index, want); err != nil {
		return "", err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	signature, err := r.imageSignature(dir, digest)
	if err != nil {
		return "", err
	}
	if err := free(tag, digest, signature, options); err != nil {
		return "", err
	}
	if err := pushSignature(tag.Context(), digest, signature, options); err != nil {
		return "", err
	}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return "", fmt.Errorf("push to %s: %w", tag, err)
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

// required returns the platforms that the image must have before it goes to a repository: all, or those of a list. The repository of the
// releases takes no part of an image, because each node must find its platform there.
func required(list, to string) ([]platform, error) {
	want, err := only(imagePlatforms, list)
	switch {
	case err != nil:
		return nil, err
	case len(want) == 0:
		return nil, fmt.Errorf("the platforms %s have none of the image: add one of %v", list, imagePlatforms)
	case list != "" && to == repository:
		return nil, fmt.Errorf("%s takes only the image of all platforms: leave out --platforms, or set --to to a repository of your own", repository)
	}
	return want, nil
}

// complete returns an error unless the image has these platforms.
func complete(index v1.ImageIndex, want []platform) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	has := map[platform]bool{}
	for _, m := range manifest.Manifests {
		if m.Platform != nil {
			has[platform{m.Platform.OS, m.Platform.Architecture}] = true
		}
	}
	for _, p := range want {
		if !has[p] {
			return fmt.Errorf("the image has no platform %s: build the release again without PLATFORMS, or push to a repository of your own with PLATFORMS", p)
		}
	}
	return nil
}

// free returns an error unless the tags of the image and of its signature can be written.
func free(tag name.Tag, digest v1.Hash, signature v1.Image, options []remote.Option) error {
	if err := unused(tag, digest, options); err != nil || signature == nil {
		return err
	}
	own, err := signature.Digest()
	if err != nil {
		return err
	}
	return unused(signatureTag(tag.Context(), digest), own, options)
}

// unused returns an error if the tag has another image. Who pulled that one must not get another one by the same name.
func unused(tag name.Tag, digest v1.Hash, options []remote.Option) error {
	found, err := remote.Head(tag, options...)
	var status *transport.Error
	switch {
	case errors.As(err, &status) && status.StatusCode == http.StatusNotFound:
		return nil
	case err != nil:
		return fmt.Errorf("look for %s: %w", tag, err)
	case found.Digest != digest:
		return fmt.Errorf("%s exists with digest %s, and the release has %s: use another version", tag, found.Digest, digest)
	}
	return nil
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
