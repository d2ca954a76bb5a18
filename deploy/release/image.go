package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user of the process, by number: Kubernetes then sees that it is not root.
const imageUser = 65532

// writeImage writes an image for each program, and an index of them, as an archive of an OCI image layout.
//
// The image has no shell and no base image. Beside the program, it has what the program reads from a system: CA
// certificates, and the user's name. Schedules have their own time zones, so there is no time zone database.
func writeImage(name, version string, from source, programs []built, texts []text) error {
	shared := append(systemFiles(), entry{name: "licenses/", mode: 0o755},
		entry{name: "licenses/LICENSE", mode: 0o644, data: find(texts, "LICENSE")},
		entry{name: "licenses/" + licencesFile, mode: 0o644, data: find(texts, licencesFile)})
	labels := map[string]string{
		"org.opencontainers.image.title":    "carillon",
		"org.opencontainers.image.version":  strings.TrimPrefix(version, "v"),
		"org.opencontainers.image.revision": from.commit,
		"org.opencontainers.image.source":   "https://" + module,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		program, err := os.ReadFile(p.file)
		if err != nil {
			return err
		}
		img, err := makeImage(p.arch, from, labels, shared, []entry{{name: "carillon", mode: 0o755, data: program}})
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}}})
	}
	index = mutate.Annotations(index, labels).(v1.ImageIndex)
	dir, err := os.MkdirTemp("", "carillon-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// The index is one entry of the layout, not the layout's own: tools then find one image, and its name.
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": strings.TrimPrefix(version, "v"),
	})); err != nil {
		return err
	}
	entries, err := readTree(dir)
	if err != nil {
		return err
	}
	return write(name, func(w io.Writer) error { return writeTar(w, entries, from.when) })
}

// systemFiles are those that the program expects in a system, without /proc and /dev, which containers get.
func systemFiles() []entry {
	return []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\ncarillon:x:65532:\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/sbin/nologin\n" +
			"carillon:x:65532:65532:Carillon server:/data:/sbin/nologin\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certificates()},
		{name: "tmp/", mode: 0o777 | fs.ModeSticky},
		// A new volume takes its owner and mode from here.
		{name: "data/", mode: 0o700, user: imageUser},
	}
}

// certificates are Mozilla's CA certificates. Some authorities are trusted only for certificates issued before a
// certain day. A file cannot express that, so these are left out.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
				panic(err) // a buffer accepts all writes
			}
		}
	}
	return b.Bytes()
}

// makeImage returns an image with a layer of each group of files.
func makeImage(arch string, from source, labels map[string]string, layers ...[]entry) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	when := v1.Time{Time: from.when}
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: when,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         "65532:65532",
			Entrypoint:   []string{"/carillon"},
			Cmd:          []string{"server", "--data", "/data", "--http", "0.0.0.0:8080", "--nats-addr", "0.0.0.0:4222"},
			Env:          []string{"PATH=/", "HOME=/data"},
			WorkingDir:   "/data",
			Volumes:      map[string]struct{}{"/data": {}},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}, "4222/tcp": {}, "7946/tcp": {}, "7947/tcp": {}},
			Labels:       labels,
		},
	})
	if err != nil {
		return nil, err
	}
	for _, entries := range layers {
		var b bytes.Buffer
		if err := writeTar(&b, entries, from.when); err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(b.Bytes())), nil
		}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
		if err != nil {
			return nil, err
		}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
			History: v1.History{Created: when, CreatedBy: "deploy/release"}}); err != nil {
			return nil, err
		}
	}
	return mutate.Annotations(img, labels).(v1.Image), nil
}

// readTree returns the files and folders in dir, sorted.
func readTree(dir string) (entries []entry, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			entries = append(entries, entry{name: name + "/", mode: 0o755})
			return nil
		}
		data, err := os.ReadFile(path)
		entries = append(entries, entry{name: name, mode: 0o644, data: data})
		return err
	})
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries, err
}
