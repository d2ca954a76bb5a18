package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// reproduce builds a release twice, in clones in different folders, the second time with an empty build cache, and
// compares the bytes. It keeps both results if they differ.
func reproduce(dir, version string, systems []system, to io.Writer) error {
	from, err := inspect(dir, version)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "carillon-reproduce-")
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			os.RemoveAll(temp)
		}
	}()
	var outs []string
	for i, folder := range []string{"a", "another/and longer path"} {
		r := release{
			dir: filepath.Join(temp, folder, "clone"), out: filepath.Join(temp, folder, "dist"),
			version: version, systems: systems, log: to,
		}
		if i == 1 {
			r.cache = filepath.Join(temp, folder, "cache")
		}
		if err := from.clone(r.dir, version); err != nil {
			return err
		}
		fmt.Fprintf(to, "building in %s\n", r.dir)
		if err := build(r); err != nil {
			return err
		}
		outs = append(outs, r.out)
	}
	n, err := compare(outs[0], outs[1])
	if err != nil {
		keep = true
		return fmt.Errorf("the two builds in %s differ:\n%w", temp, err)
	}
	fmt.Fprintf(to, "%d files are equal, byte for byte\n", n)
	return nil
}

// compare returns how many files two folders have, and an error that names each one that differs.
func compare(one, two string) (int, error) {
	names, err := listFiles(one)
	if err != nil {
		return 0, err
	}
	others, err := listFiles(two)
	if err != nil {
		return 0, err
	}
	if !slices.Equal(names, others) {
		return 0, fmt.Errorf("%s has %q, and %s has %q", one, names, two, others)
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("%s is empty", one)
	}
	var wrong []error
	for _, name := range names {
		a, err := os.ReadFile(filepath.Join(one, name))
		if err != nil {
			return 0, err
		}
		b, err := os.ReadFile(filepath.Join(two, name))
		if err != nil {
			return 0, err
		}
		if !bytes.Equal(a, b) {
			wrong = append(wrong, fmt.Errorf("%s: %d and %d bytes, first difference at %d", name, len(a), len(b), differ(a, b)))
		}
	}
	return len(names), errors.Join(wrong...)
}

// differ returns the position of the first byte that differs.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
