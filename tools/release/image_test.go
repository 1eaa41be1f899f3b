package main

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// testPush pushes the image to a registry and pulls it by the digest in the notes.
func testPush(t *testing.T, r release) {
	t.Helper()
	to := serve(t)
	digest := mustPush(t.Context(), t, r, to)
	if notes := contents(t, r.out)["release-notes.md"]; !bytes.Contains(notes, []byte(digest.String())) {
		t.Errorf("the notes do not name the digest %s", digest)
	}
	ref, err := name.NewDigest(to + "@" + digest.String())
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the image in the registry is not valid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := manifest.Annotations["org.opencontainers.image.revision"]; got != r.commit {
		t.Errorf("the annotation says commit %q, want %q", got, r.commit)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Platform.Architecture != host.arch {
		t.Fatalf("the index is %+v", manifest.Manifests)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	expectImage(t, r, img)
	expectReferrer(t, r, ref)
	expectSignature(t, r, ref)
	tagged, err := remote.Head(ref.Context().Tag(string(r.version)), remote.WithContext(t.Context()))
	if err != nil || tagged.Digest != digest {
		t.Errorf("the tag is %v, %v, want %s", tagged, err, digest)
	}
	if again := mustPush(t.Context(), t, r, to); again != digest {
		t.Errorf("pushed again, the digest is %s, want %s", again, digest)
	}
	expectRefusals(t, r, to)
	expectAnotherSignatureStays(t, r, ref)
}

// expectRefusals checks that an image without all platforms is refused, or another image by the same tag.
func expectRefusals(t *testing.T, r release, to string) {
	t.Helper()
	if _, err := push(t.Context(), r.out, r.version, to, imagePlatforms); err == nil || !strings.Contains(err.Error(), "the image has no platform linux/") {
		t.Errorf("an image of one platform: %v", err)
	}
	other, err := random.Index(10, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := name.NewTag(to + "-taken:" + string(r.version))
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(taken, other, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := push(t.Context(), r.out, r.version, taken.Context().String(), r.imagePlatforms); err == nil ||
		!strings.Contains(err.Error(), "use another version") {
		t.Errorf("a tag with another image: %v", err)
	}
}

// expectImage checks what is in the image, and what runs.
func expectImage(t *testing.T, r release, img v1.Image) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/druid"}) || !config.Created.Equal(r.at) {
		t.Errorf("the configuration is %+v", config)
	}
	flat := mutate.Extract(img)
	defer flat.Close()
	files := untar(t, flat)
	hashes := map[string]string{}
	for _, c := range *readSBOM(t, r).Components {
		if c.Type == cyclonedx.ComponentTypeApplication {
			hashes[c.BOMRef] = (*c.Hashes)[0].Value
		}
	}
	for _, program := range []string{"agent", "launch", "druid"} {
		content := files["usr/local/bin/"+program]
		if want := hashes[program+"-linux-"+host.arch]; sum(content) != want {
			t.Errorf("%s has the hash %s, and the SBOM says %s", program, sum(content), want)
		}
	}
	expectVersion(t, files["usr/local/bin/druid"])
	expectVersion(t, files["usr/local/bin/agent"])
	if !bytes.Contains(files["etc/passwd"], []byte("\nnonroot:x:65532:65532:")) {
		t.Error("/etc/passwd has no user 65532")
	}
	if !x509.NewCertPool().AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]) {
		t.Error("the image has no roots of trust")
	}
}

// expectReferrer asks the registry what refers to the image.
func expectReferrer(t *testing.T, r release, ref name.Digest) {
	t.Helper()
	found, err := remote.Referrers(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := found.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != string(sbomType) {
		t.Fatalf("the image has the referrers %+v, %v, want the SBOM", manifest, err)
	}
	artifact, err := remote.Image(ref.Context().Digest(manifest.Manifests[0].Digest.String()), remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(firstLayer(t, artifact), contents(t, r.out)[r.sbomFile()]) {
		t.Error("the registry has another SBOM than the release")
	}
}

// firstLayer returns the content of the first layer of an artifact, which is a file as it is.
func firstLayer(t *testing.T, artifact v1.Image) []byte {
	t.Helper()
	layers, err := artifact.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	got, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// testDockerArchive compares the configuration, which names the files of all layers.
func testDockerArchive(t *testing.T, r release) {
	t.Helper()
	tag, err := name.NewTag(r.imageName())
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tarball.ImageFromPath(filepath.Join(r.out, fmt.Sprintf("druid-%s-image-linux-%s.tar", r.version, host.arch)), &tag)
	if err != nil {
		t.Fatal(err)
	}
	index, err := readLayout(filepath.Join(r.out, r.layoutFile()), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	want, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := loaded.ConfigName(); err != nil || got != want {
		t.Errorf("the archive for Docker has the image %s, %v, want %s", got, err, want)
	}
}

func readSBOM(t *testing.T, r release) *cyclonedx.BOM {
	t.Helper()
	bom := new(cyclonedx.BOM)
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(contents(t, r.out)[r.sbomFile()]), cyclonedx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	return bom
}

// testSBOM compares the SBOM with what the go command says about the sources.
func testSBOM(t *testing.T, r release) {
	t.Helper()
	bom := readSBOM(t, r)
	known := map[string]bool{bom.Metadata.Component.BOMRef: true}
	for _, c := range *bom.Components {
		known[c.BOMRef] = true
	}
	listed := map[string][]string{}
	for _, d := range *bom.Dependencies {
		listed[d.Ref] = *d.Dependencies
		for _, ref := range append([]string{d.Ref}, *d.Dependencies...) {
			if !known[ref] {
				t.Errorf("the SBOM refers to %s and has no such component", ref)
			}
		}
	}
	for _, program := range []string{"agent", "launch", "druid", "druid-backup"} {
		want := linkedModules(t, r.repo, program)
		got := slices.DeleteFunc(slices.Clone(listed[program+"-linux-"+host.arch]), func(ref string) bool { return strings.HasPrefix(ref, "pkg:golang/std@") })
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("the SBOM of %s lists\n%q, want\n%q", program, got, want)
		}
	}
	if got := listed[r.imageName()]; len(got) != 4 || !strings.HasPrefix(got[3], "pkg:golang/"+rootsModule+"@") {
		t.Errorf("the image has %q, want three programs and the roots of trust", got)
	}
}

func linkedModules(t *testing.T, repo, program string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{with .Module}}{{if not .Main}}pkg:golang/{{.Path}}@{{.Version}}{{end}}{{end}}`, "./cmd/"+program)
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "PWD="+repo, "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(strings.ReplaceAll(string(out), "+", "%2B"))
	slices.Sort(modules)
	return slices.Compact(modules)
}

// The programs are small here: only the shape of the image matters.
func TestTheImageHasAllPlatforms(t *testing.T) {
	r := release{version: testVersion, commit: "c", at: moment, progress: io.Discard}
	images := map[platform]v1.Image{}
	for _, p := range imagePlatforms {
		content := map[string][]byte{"agent": []byte("agent " + p.arch), "launch": []byte("launch"), "druid": []byte("druid")}
		img, err := r.image(p, content)
		if err != nil {
			t.Fatal(err)
		}
		images[p] = img
		delete(content, "launch")
		if _, err := r.image(p, content); err == nil || !strings.Contains(err.Error(), "the program launch is missing") {
			t.Errorf("an image without launch: %v", err)
		}
	}
	index, err := r.index(images)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := index.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	var manifest v1.IndexManifest
	if err := json.Unmarshal(raw, &manifest); err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("the platforms are %q, want %q", platforms, want)
	}
}

func TestTheRootsOfTrustAreCertificates(t *testing.T) {
	rest, found := roots(), 0
	for {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !certificate.IsCA {
			t.Errorf("a root of trust is %v, %v", certificate, err)
		}
		rest, found = after, found+1
	}
	if found < 100 || len(rest) > 0 {
		t.Errorf("found %d roots, and %d bytes are left; Mozilla has more than 100", found, len(rest))
	}
}

func TestPushRefusesAReleaseThatChanged(t *testing.T) {
	dir := t.TempDir()
	r := release{out: dir, version: testVersion, progress: io.Discard}
	if _, err := push(t.Context(), dir, testVersion, "127.0.0.1:1/druid", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a release: %v", err)
	}
	for _, file := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeSums(); err != nil {
		t.Fatal(err)
	}
	if err := checkSums(dir); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "a"), []byte("changed"), 0o600), os.Remove(filepath.Join(dir, "b"))); err != nil {
		t.Fatal(err)
	}
	_, err := push(t.Context(), dir, testVersion, "127.0.0.1:1/druid", nil)
	if err == nil || !strings.Contains(err.Error(), "a is not the file in SHA256SUMS") || !strings.Contains(err.Error(), "b is missing") {
		t.Errorf("with other files: %v", err)
	}
}
