package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// images returns the images in an archive, by architecture.
func images(t *testing.T, file, tag string) map[string]v1.Image {
	t.Helper()
	dir := t.TempDir()
	index, err := openImage(file, dir)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].MediaType != types.OCIImageIndex ||
		top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != tag {
		t.Fatalf("the layout has %+v", top.Manifests)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		if m.Platform == nil || m.Platform.OS != "linux" {
			t.Fatalf("the index has %+v", m)
		}
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		found[m.Platform.Architecture] = img
	}
	return found
}

// rootfs returns the files of an image.
func rootfs(t *testing.T, img v1.Image) map[string]member {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]member{}
	for _, layer := range layers {
		r, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for name, m := range readTar(t, r) {
			found[name] = m
		}
	}
	return found
}

// Push writes the image to a registry under its digest, and only to a full name.
func checkPush(t *testing.T, file string) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/carillon:0.1.0"
	refused(t, push(file, "carillon", io.Discard), "want REGISTRY/NAME:TAG")
	var out strings.Builder
	if err := push(file, to, &out); err != nil {
		t.Fatal(err)
	}
	want, err := openImage(file, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	digest, err := want.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != to+"@"+digest.String()+"\n" {
		t.Errorf("push prints %q, want the digest %s", got, digest)
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pushed.Digest(); err != nil || got != digest {
		t.Errorf("the registry has %s (%v), want %s", got, err, digest)
	}
	if err := validate.Index(pushed); err != nil {
		t.Error(err)
	}
}

func checkImage(t *testing.T, file, tag string, archs ...string) {
	found := images(t, file, tag)
	if len(found) != len(archs) {
		t.Errorf("the image is for %d architectures, want %q", len(found), archs)
	}
	for _, arch := range archs {
		config, err := found[arch].ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := config.Config
		_, volume := c.Volumes["/data"]
		if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/carillon"}) || !volume ||
			config.Architecture != arch || c.Labels["org.opencontainers.image.version"] != tag {
			t.Errorf("%s: %+v", arch, config)
		}
		files := rootfs(t, found[arch])
		for name, m := range files {
			owner := 0
			if name == "data" {
				owner = 65532
			}
			if m.Uid != owner || m.Gid != owner {
				t.Errorf("%s belongs to %d:%d, want %d", name, m.Uid, m.Gid, owner)
			}
			if m.Mode&0o6000 != 0 {
				t.Errorf("%s has mode %o", name, m.Mode)
			}
		}
		for name, mode := range map[string]int64{"data": 0o700, "tmp": 0o1777, "carillon": 0o755, "etc/passwd": 0o644} {
			if m, ok := files[name]; !ok || m.Mode != mode {
				t.Errorf("%s has mode %o, want %o", name, m.Mode, mode)
			}
		}
		pool := x509.NewCertPool()
		certs := files["etc/ssl/certs/ca-certificates.crt"].data
		if n := bytes.Count(certs, []byte("BEGIN CERTIFICATE")); n < 80 || !pool.AppendCertsFromPEM(certs) {
			t.Errorf("the image has %d CA certificates", n)
		}
		if !hasAuthority(certs, "ISRG Root X1") {
			t.Error("the authority of Let's Encrypt is missing")
		}
		if !strings.Contains(string(files["licenses/"+licencesFile].data), "The Go Authors") {
			t.Error("the image has no licences")
		}
	}
}

func hasAuthority(certs []byte, name string) bool {
	for block, rest := pem.Decode(certs); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.Subject.CommonName == name {
			return true
		}
	}
	return false
}
