package main

import (
	"bytes"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/yaml"

	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // Helm reports symbolic links
	code := sqltest.Main(m)
	if builtIn != "" {
		os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

// Secrets of tests. They occur in objects of kind Secret only.
const (
	adminToken    = "carillon_default_test0001_ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	clusterSecret = "a-secret-that-only-the-tests-use-0123456789"
)

func theChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// example returns the values of an example, with the secrets that the chart would generate.
func example(t *testing.T, name string) map[string]any {
	t.Helper()
	values, err := readValues(filepath.Join(valuesDir, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if secrets, _ := values["secrets"].(map[string]any); secrets == nil {
		given := map[string]any{"adminToken": adminToken}
		if values["mode"] == "cluster" {
			given["clusterSecret"] = clusterSecret
		}
		values["secrets"] = given
	}
	return values
}

// with returns values with others in YAML over them.
func with(t *testing.T, values map[string]any, more string) map[string]any {
	t.Helper()
	var over map[string]any
	if err := yaml.Unmarshal([]byte(more), &over); err != nil {
		t.Fatal(err)
	}
	return chartutil.MergeTables(over, values)
}

func rendered(t *testing.T, values map[string]any) []object {
	t.Helper()
	files, err := render(theChart(t), values, newest, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := objects(files)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// eachExample runs a test for each example.
func eachExample(t *testing.T, test func(t *testing.T, name string, all []object)) {
	t.Helper()
	names, err := examples()
	if err != nil || len(names) < 5 {
		t.Fatalf("%d examples: %v", len(names), err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { test(t, name, rendered(t, example(t, name))) })
	}
}

// read decodes an object.
func read[T any](t *testing.T, o object) (to T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(o.text), &to); err != nil {
		t.Fatalf("%s %s: %v\n%s", o.Kind, o.Metadata.Name, err, o.text)
	}
	return to
}

// find returns the objects of a kind.
func find(all []object, kind string) (some []object) {
	for _, o := range all {
		if o.Kind == kind {
			some = append(some, o)
		}
	}
	return some
}

// Rendering twice gives the same text, and packing twice the same bytes, which Helm reads as the same chart.
func TestReproducible(t *testing.T) {
	eachExample(t, func(t *testing.T, name string, all []object) {
		if again := rendered(t, example(t, name)); !slices.Equal(all, again) {
			t.Error("the second rendering differs")
		}
	})
	var one, two bytes.Buffer
	for _, to := range []*bytes.Buffer{&one, &two} {
		c, err := load("1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		if err := pack(c, to); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two packages differ")
	}
	dir := t.TempDir()
	if err := write(dir, "1.2.3"); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "carillon-1.2.3.tgz"))
	if err != nil || !bytes.Equal(written, one.Bytes()) {
		t.Errorf("the written package differs: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cluster.yaml")); err != nil {
		t.Error(err)
	}
	unpacked, err := loadArchive(&one)
	if err != nil {
		t.Fatal(err)
	}
	if unpacked.Metadata.Version != "1.2.3" || unpacked.Metadata.AppVersion != "1.2.3" {
		t.Errorf("the package has version %s of %s", unpacked.Metadata.Version, unpacked.Metadata.AppVersion)
	}
	values := example(t, "everything")
	values["image"] = map[string]any{"tag": ""}
	packed, err := render(unpacked, values, newest, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(packed["server.yaml"], "image: ghcr.io/carillon-scheduler/carillon:1.2.3\n") {
		t.Error("the packed chart starts an image of another version")
	}
	if !slices.Equal(slices.Sorted(maps.Keys(packed)), slices.Sorted(maps.Keys(mustRender(t, values)))) {
		t.Error("the packed chart renders other files")
	}
}

func mustRender(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	files, err := render(theChart(t), values, newest, nil)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
