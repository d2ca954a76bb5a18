package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

// Paths, as seen from this directory.
const (
	chartDir  = "../carillon"
	valuesDir = "../values"
)

// release names the chart's objects in examples.
var release = chartutil.ReleaseOptions{Name: "carillon", Namespace: "jobs", Revision: 1, IsInstall: true}

// load reads the chart. A version that is not empty replaces the chart's own.
func load(version string) (*chart.Chart, error) {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		return nil, err
	}
	if version != "" {
		c.Metadata.Version, c.Metadata.AppVersion = version, version
	}
	return c, c.Validate()
}

// readValues reads a file with values.
func readValues(file string) (map[string]any, error) {
	return chartutil.ReadValuesFile(file)
}

// render returns the files that Helm would send, by the names of their templates. in has the objects that
// lookups find; nil: none, as for helm template.
func render(c *chart.Chart, values map[string]any, kubernetes string, in engine.ClientProvider) (map[string]string, error) {
	caps := chartutil.DefaultCapabilities.Copy()
	v, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return nil, err
	}
	caps.KubeVersion = *v
	if !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, v.String()) {
		return nil, fmt.Errorf("the chart needs Kubernetes %s, which is not %s", c.Metadata.KubeVersion, v)
	}
	all, err := chartutil.ToRenderValues(c, values, release, caps)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if in != nil {
		files, err = engine.RenderWithClientProvider(c, all, in)
	}
	if err != nil {
		return nil, err
	}
	byName := map[string]string{}
	for name, text := range files {
		if name = path.Base(name); strings.TrimSpace(text) != "" && !strings.HasPrefix(name, "_") {
			byName[name] = text
		}
	}
	return byName, nil
}

// object is one object of Kubernetes.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	text     string // as it was rendered
}

// objects returns the objects of rendered files, in a stable order.
func objects(files map[string]string) ([]object, error) {
	var all []object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name == "NOTES.txt" {
			continue
		}
		for text := range strings.SplitSeq("\n"+files[name], "\n---\n") {
			var o object
			if err := yaml.Unmarshal([]byte(text), &o); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, text)
			}
			if o.Kind == "" { // comments only
				continue
			}
			o.text = strings.TrimSpace(text) + "\n"
			all = append(all, o)
		}
	}
	return all, nil
}

// manifest is all objects as one text.
func manifest(files map[string]string) (string, error) {
	all, err := objects(files)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, o := range all {
		fmt.Fprintf(&b, "---\n%s", o.text)
	}
	return b.String(), nil
}

// pack writes the chart as helm package does, but the same files give the same bytes.
func pack(c *chart.Chart, to io.Writer) error {
	zip := gzip.NewWriter(to)
	out := tar.NewWriter(zip)
	meta, err := yaml.Marshal(c.Metadata)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, f := range c.Raw {
		files[f.Name] = f.Data
	}
	files["Chart.yaml"] = meta // with the version of this package
	for _, name := range slices.Sorted(maps.Keys(files)) {
		head := &tar.Header{Name: path.Join(c.Name(), name), Mode: 0o644, Size: int64(len(files[name])), ModTime: time.Unix(0, 0).UTC()}
		if err := out.WriteHeader(head); err != nil {
			return err
		}
		if _, err := out.Write(files[name]); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return zip.Close()
}

// examples are the names of the files with values.
func examples() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(valuesDir, "*.yaml"))
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	return files, err
}

// write renders every example, and packs the chart, into a directory.
func write(dir, version string) error {
	c, err := load(version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	names, err := examples()
	if err != nil {
		return err
	}
	for _, name := range names {
		values, err := readValues(filepath.Join(valuesDir, name+".yaml"))
		if err != nil {
			return err
		}
		files, err := render(c, values, newest, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		text, err := manifest(files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	var packed bytes.Buffer
	if err := pack(c, &packed); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%s.tgz", c.Name(), c.Metadata.Version)), packed.Bytes(), 0o644)
}
