package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes which modules a program contains, as CycloneDX. It reads them from the program itself, where the
// linker recorded them; the graph between modules is not recorded, so all are dependencies of the program.
func writeSBOM(name, version string, p built, when time.Time) error {
	program, err := os.ReadFile(p.file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(program)
	main := cyclonedx.Component{
		BOMRef: purl(module, version), Type: cyclonedx.ComponentTypeApplication, Name: "carillon", Version: version,
		PackageURL: purl(module, version),
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
		Properties: properties(p),
	}
	// Scanners know the standard library, its functions and its advisories by this name.
	std := strings.TrimPrefix(p.info.GoVersion, "go")
	components := []cyclonedx.Component{{
		BOMRef: purl("stdlib", std), Type: cyclonedx.ComponentTypeLibrary, Name: "stdlib", Version: std,
		PackageURL: purl("stdlib", std),
	}}
	for _, d := range p.info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		components = append(components, cyclonedx.Component{
			BOMRef: purl(d.Path, d.Version), Type: cyclonedx.ComponentTypeLibrary, Name: d.Path, Version: d.Version,
			PackageURL: purl(d.Path, d.Version),
			Properties: &[]cyclonedx.Property{{Name: "carillon:go.sum", Value: d.Sum}},
		})
	}
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: when.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return write(name, func(w io.Writer) error {
		return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).
			EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	})
}

// purl names a module in the form of package URLs.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// properties are the settings of the build.
func properties(p built) *[]cyclonedx.Property {
	list := []cyclonedx.Property{{Name: "carillon:go", Value: p.info.GoVersion}}
	for _, s := range p.info.Settings {
		list = append(list, cyclonedx.Property{Name: "carillon:build:" + s.Key, Value: s.Value})
	}
	return &list
}
