// Package jobfile parses files with job definitions, for "carillon apply" and for the server's setting jobs.from.
//
// It is not promised to programs outside this module.
//
// Where to start: [Content.Add]. A file is YAML (or JSON), one document or several, each with a list "jobs:". Errors
// have file and line.
package jobfile

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Stated is a job of a file with its position.
type Stated struct {
	Key  string
	Body map[string]any // as the API takes it: key, kind, app and fields

	file  string
	lines map[string]int // by field; "" = where the job begins
}

// Place returns the position of a field, or of the job itself: "jobs.yaml:3".
func (s *Stated) Place(field string) string {
	return fmt.Sprintf("%s:%d", s.file, cmp.Or(s.lines[field], s.lines[""]))
}

// MaxBytes bounds the size of a file.
const MaxBytes = 16 << 20

// Piped is the path that means standard input.
const Piped = "-"

// Files returns the files of a path: itself, or the .yaml, .yml and .json files of a folder, by name.
func Files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, kernel.Invalid("%v", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	return names, nil
}

// Read reads a file, or in if name is [Piped].
func Read(name string, in io.Reader) ([]byte, error) {
	if name != Piped {
		f, err := os.Open(name)
		if err != nil {
			return nil, kernel.Invalid("%v", err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, MaxBytes+1))
	if err == nil && len(raw) > MaxBytes {
		err = kernel.Invalid("%s is larger than %d MiB", name, MaxBytes>>20)
	}
	return raw, err
}

// Parse parses the jobs of a file. field returns an error for an invalid field name.
func Parse(file string, raw []byte, field func(name string) error) ([]Stated, error) {
	if file == Piped {
		file = "(stdin)"
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var list []Stated
	for {
		var doc yaml.Node
		err := d.Decode(&doc)
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, kernel.Invalid("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
			continue
		}
		top := doc.Content[0]
		if top.Kind != yaml.MappingNode {
			return nil, misread(file, top, "a file of jobs begins with \"jobs:\"")
		}
		for i := 0; i+1 < len(top.Content); i += 2 {
			name, value := top.Content[i], top.Content[i+1]
			switch {
			case name.Value == "calendars", name.Value == "bundle":
				continue // see Calendars and Bundle
			case name.Value != "jobs":
				return nil, misread(file, name, "%q is not known here; a file has \"jobs:\", \"calendars:\" and \"bundle:\"", name.Value)
			case value.Kind != yaml.SequenceNode:
				return nil, misread(file, value, "jobs: is a list, each item with a key")
			}
			for _, item := range value.Content {
				one, err := parseJob(file, item, field)
				if err != nil {
					return nil, err
				}
				list = append(list, one)
			}
		}
	}
}

// Bundle returns the bundle that a file names, or "", and its position.
func Bundle(file string, raw []byte) (name, place string, err error) {
	if file == Piped {
		file = "(stdin)"
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var doc yaml.Node
		if err := d.Decode(&doc); err == io.EOF {
			return name, place, nil
		} else if err != nil {
			return "", "", misread(file, &doc, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
			continue
		}
		top := doc.Content[0]
		for i := 0; i+1 < len(top.Content); i += 2 {
			if top.Content[i].Value != "bundle" {
				continue
			}
			value := top.Content[i+1]
			if value.Kind != yaml.ScalarNode || value.Tag != "!!str" {
				return "", "", misread(file, value, "bundle: is a name")
			}
			if err := kernel.CheckName("bundle", value.Value); err != nil {
				return "", "", misread(file, value, "%v", err)
			}
			if name != "" && name != value.Value {
				return "", "", misread(file, value, "bundle %s differs from bundle %s in %s: apply them one by one", value.Value, name, place)
			}
			name, place = value.Value, fmt.Sprintf("%s:%d", file, value.Line)
		}
	}
}

// Content is what files that are applied together have.
type Content struct {
	Bundle    string // the only one that a file names; "" = none
	Jobs      []Stated
	Calendars []Calendar

	place string // of Bundle
}

// Add parses a file. field returns an error for an invalid field name.
func (c *Content) Add(file string, raw []byte, field func(name string) error) error {
	list, err := Parse(file, raw, field)
	if err != nil {
		return err
	}
	calendars, err := Calendars(file, raw)
	if err != nil {
		return err
	}
	bundle, place, err := Bundle(file, raw)
	if err != nil {
		return err
	}
	if bundle != "" {
		if c.Bundle != "" && c.Bundle != bundle {
			return kernel.Invalid("%s: bundle %s differs from bundle %s in %s: apply them one by one", place, bundle, c.Bundle, c.place)
		}
		c.Bundle, c.place = bundle, place
	}
	c.Jobs, c.Calendars = append(c.Jobs, list...), append(c.Calendars, calendars...)
	return nil
}

func misread(file string, n *yaml.Node, format string, args ...any) error {
	return kernel.Invalid("%s:%d: %v", file, n.Line, kernel.Invalid(format, args...))
}

// parseJob parses one job, and refuses unknown fields with their position.
func parseJob(file string, n *yaml.Node, field func(string) error) (Stated, error) {
	if n.Kind != yaml.MappingNode {
		return Stated{}, misread(file, n, "a job is a list of fields, the first of them its key")
	}
	s := Stated{file: file, lines: map[string]int{"": n.Line}, Body: map[string]any{}}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if !slices.Contains([]string{"key", "kind", "app"}, name.Value) {
			if err := field(name.Value); err != nil {
				return s, misread(file, name, "%v", err)
			}
		}
		if _, twice := s.Body[name.Value]; twice {
			return s, misread(file, name, "%s is given twice", name.Value)
		}
		v, err := parseValue(value)
		if err != nil {
			return s, misread(file, value, "%s: %v", name.Value, err)
		}
		s.lines[name.Value], s.Body[name.Value] = name.Line, v
	}
	if s.Key, _ = s.Body["key"].(string); s.Key == "" {
		return s, misread(file, n, "a job without a key")
	}
	return s, nil
}

// Distinct returns an error if a job is there twice.
func Distinct(list []Stated) error {
	seen := map[string]Stated{}
	for _, s := range list {
		if first, twice := seen[s.Key]; twice {
			return kernel.Invalid("%s: job %.60q is already in %s", s.Place(""), s.Key, first.Place(""))
		}
		seen[s.Key] = s
	}
	return nil
}
