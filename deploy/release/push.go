package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push writes the image in an archive to a registry, with the logins of docker and podman. The registry gets the bytes
// of the archive, so that the image has the same digest for all; skopeo 1.9 writes an index of its own.
func push(file, to string, log io.Writer) error {
	ref, err := name.NewTag(to, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("invalid image %q: want REGISTRY/NAME:TAG: %w", to, err)
	}
	dir, err := os.MkdirTemp("", "carillon-push-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	index, err := openImage(file, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "%s@%s\n", ref, digest)
	return nil
}

// openImage unpacks an archive of an OCI image layout into dir, and returns its image.
func openImage(file, dir string) (v1.ImageIndex, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir) // no name in the archive leads out of it
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for r := tar.NewReader(f); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if head.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		if err := root.MkdirAll(filepath.Dir(head.Name), 0o755); err != nil {
			return nil, err
		}
		if err := root.WriteFile(head.Name, data, 0o644); err != nil {
			return nil, err
		}
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	top, err := outer.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(top.Manifests) != 1 {
		return nil, fmt.Errorf("%d images, want 1", len(top.Manifests))
	}
	return outer.ImageIndex(top.Manifests[0].Digest)
}
