package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func (r *release) sbomFile() string { return fmt.Sprintf("druid-%s-sbom.cdx.json", r.version) }

// writeSBOM lists the programs and the modules that they link. It reads what Go's linker wrote into the programs, so that it lists
// exactly what is in them, and no module that only tests use.
func (r *release) writeSBOM(programs []built, image v1.Hash) error {
	modules := map[string]cyclonedx.Component{}
	var components []cyclonedx.Component
	var links []cyclonedx.Dependency
	for _, p := range programs {
		program, linked, err := describe(p, r.version)
		if err != nil {
			return fmt.Errorf("SBOM: %s for %s: %w", p.name, p.platform, err)
		}
		refs := []string{}
		for _, m := range linked {
			modules[m.BOMRef] = m
			refs = append(refs, m.BOMRef)
		}
		components = append(components, program)
		links = append(links, cyclonedx.Dependency{Ref: program.BOMRef, Dependencies: &refs})
	}
	inImage := []string{}
	for _, p := range programs {
		if slices.Contains(slices.Concat(imageLayers...), p.name) {
			inImage = append(inImage, reference(p))
		}
	}
	trust, err := rootsOfTrust()
	if err != nil {
		return fmt.Errorf("SBOM: %w", err)
	}
	modules[trust.BOMRef] = trust
	inImage = append(inImage, trust.BOMRef)
	links = append(links, cyclonedx.Dependency{Ref: r.imageName(), Dependencies: &inImage})
	components = slices.AppendSeq(components, maps.Values(modules))
	byRef := func(a, b cyclonedx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) }
	slices.SortFunc(components, byRef)
	slices.SortFunc(links, func(a, b cyclonedx.Dependency) int { return cmp.Compare(a.Ref, b.Ref) })
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.at.UTC().Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: r.imageName(), Type: cyclonedx.ComponentTypeContainer, Name: repository, Version: string(r.version),
			PackageURL: fmt.Sprintf("pkg:oci/druid@%s?repository_url=%s&tag=%s", strings.Replace(image.String(), ":", "%3A", 1), repository, r.version),
			Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: image.Hex}},
		},
	}
	bom.Components, bom.Dependencies = &components, &links
	// Many tools do not read a later version yet.
	return r.write(r.sbomFile(), func(w io.Writer) error {
		return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	})
}

// reference names a program within the SBOM.
func reference(p built) string { return p.name + "-" + p.os + "-" + p.arch }

// describe returns a program and the modules that it links, with Go's own library.
func describe(p built, v version) (cyclonedx.Component, []cyclonedx.Component, error) {
	content, err := os.ReadFile(p.file)
	if err != nil {
		return cyclonedx.Component{}, nil, err
	}
	info, err := buildinfo.ReadFile(p.file)
	if err != nil {
		return cyclonedx.Component{}, nil, err
	}
	program := cyclonedx.Component{
		BOMRef: reference(p), Type: cyclonedx.ComponentTypeApplication, Name: p.name, Version: string(v),
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(content))}},
		Properties: &[]cyclonedx.Property{{Name: "druid:os", Value: p.os}, {Name: "druid:architecture", Value: p.arch}},
	}
	linked := []cyclonedx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := library(m.Path, m.Version)
		if sum, ok := hexSum(m.Sum); ok {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}}
		}
		linked = append(linked, c)
	}
	return program, linked, nil
}

func library(path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}

// hexSum converts a sum of go.sum: h1 is SHA-256 over the list of the files, in base64.
func hexSum(sum string) (string, bool) {
	encoded, ok := strings.CutPrefix(sum, "h1:")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	return hex.EncodeToString(raw), ok && err == nil
}

// rootsOfTrust is the module whose certificates are in the image.
func rootsOfTrust() (cyclonedx.Component, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cyclonedx.Component{}, errors.New("this program does not know which modules it links: build it with the go command")
	}
	for _, m := range info.Deps {
		if m.Path == rootsModule {
			c := library(m.Path, m.Version)
			c.Type, c.Description = cyclonedx.ComponentTypeData, "The roots of trust of Mozilla, as /etc/ssl/certs/ca-certificates.crt of the image"
			return c, nil
		}
	}
	return cyclonedx.Component{}, fmt.Errorf("this program does not link %s", rootsModule)
}
