// Package project makes the files of a new program with jobs, for "carillon init".
//
// It is not promised to programs outside this module.
//
// Where to start: [Make]. The files are templates in the folder files: common, and those of one variant.
package project

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

//go:embed files
var files embed.FS

// library is the module that a project requires.
const library = "github.com/carillon-scheduler/carillon"

// goVersion is the version of Go in a project's go.mod: that of ours.
const goVersion = "1.26.0"

// Config says which project to make.
type Config struct {
	Dir      string // missing or empty
	Module   string // default: example.com/ and the directory's name
	Embedded bool   // the server is part of the program
	Replace  string // a checkout of Carillon; default: one around Dir or the working directory, if Version is no release
	Version  string // of this program
}

// values are what templates know.
type values struct {
	Module, App, Go, Library, Version, Replace string

	Embedded bool
	Requires string // of the checkout: all modules that the program and its tests need
	sums     string
}

var (
	release    = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)[.\d]*)?$`)
	modulePath = regexp.MustCompile(`^[A-Za-z0-9][-._~A-Za-z0-9]*(/[-._~A-Za-z0-9]+)*$`)
	requires   = regexp.MustCompile(`(?ms)^require \($.*?^\)$`)
	required   = regexp.MustCompile(`(?m)^(\t[^/\s]+/\S+ \S+)$`)
	notInNames = regexp.MustCompile(`[^a-z0-9]+`)
)

// Make makes a project and returns the paths of its files below c.Dir. It overwrites nothing.
func Make(c Config) ([]string, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	if err := checkEmpty(c.Dir); err != nil {
		return nil, err
	}
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(filepath.Base(dir)), "-"), "-")
	v := values{Module: c.Module, Go: goVersion, Library: library, Version: c.Version, Embedded: c.Embedded}
	if v.Module == "" {
		if name == "" {
			return nil, kernel.Invalid("the name of directory %s makes no module path: give one with --module, such as example.com/billing", dir)
		}
		v.Module = "example.com/" + name
	}
	if !modulePath.MatchString(v.Module) {
		return nil, kernel.Invalid("invalid module path %.100q: want one such as example.com/billing", v.Module)
	}
	v.App = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(path.Base(v.Module)), "-"), "-")
	if v.App == "" {
		return nil, kernel.Invalid("invalid module path %.100q: its last part needs a letter or a digit", v.Module)
	}
	if err := v.require(c, dir); err != nil {
		return nil, err
	}
	made, err := v.render()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(made))
	for name := range made {
		names = append(names, name)
	}
	slices.Sort(names)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range names {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		_, err = f.WriteString(made[name])
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// checkEmpty refuses a directory with files, except for a new Git repository.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return kernel.Invalid("%v: want an empty or missing directory", err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".git" })
	if len(entries) == 0 {
		return nil
	}
	var first []string
	for _, e := range entries[:min(len(entries), 3)] {
		first = append(first, e.Name())
	}
	if n := len(entries) - len(first); n > 0 {
		first = append(first, fmt.Sprintf("%d more", n))
	}
	return kernel.Refuse(jobs.Conflict, "directory %s is not empty (%s): want an empty or missing one", dir, strings.Join(first, ", "))
}

// require sets the version of Carillon in go.mod, and the checkout that replaces it.
func (v *values) require(c Config, dir string) error {
	checkout := c.Replace
	if checkout != "" && !isCheckout(checkout) {
		return kernel.Invalid("--replace %s is no checkout of %s: its go.mod has another module, or is missing", checkout, library)
	}
	if checkout == "" && !release.MatchString(c.Version) {
		if checkout = around(dir); checkout == "" {
			working, err := os.Getwd()
			if err != nil {
				return err
			}
			checkout = around(working)
		}
		if checkout == "" {
			return kernel.Invalid("this program is no release (%s), so go.mod needs a checkout of Carillon: give it with --replace", c.Version)
		}
	}
	if checkout == "" {
		return nil
	}
	v.Version = "v0.0.0"
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		return err
	}
	if err := v.take(checkout); err != nil {
		return err
	}
	v.Replace = checkout
	if near, err := filepath.Rel(dir, checkout); err == nil && strings.Count(near, "..") < 4 {
		v.Replace = filepath.ToSlash(near)
		if !strings.HasPrefix(near, ".") {
			v.Replace = "./" + v.Replace
		}
	}
	if strings.ContainsAny(v.Replace, " \t'\"`\n") {
		v.Replace = fmt.Sprintf("%q", v.Replace)
	}
	return nil
}

// take takes over the requirements of a checkout and their checksums, so that nothing has to be downloaded.
func (v *values) take(checkout string) error {
	mod, err := os.ReadFile(filepath.Join(checkout, "go.mod"))
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(checkout, "go.sum"))
	if err != nil {
		return err
	}
	text := strings.Join(requires.FindAllString(string(mod), -1), "\n\n")
	v.Requires, v.sums = required.ReplaceAllString(text, "$1 // indirect"), string(sums)
	return nil
}

// around returns the checkout that a directory is in, or "".
func around(dir string) string {
	for {
		if isCheckout(dir) {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

func isCheckout(dir string) bool {
	raw, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(raw), "module "+library+"\n")
}

// render returns the files of a variant by name.
func (v *values) render() (map[string]string, error) {
	made := map[string]string{}
	variant := "files/worker"
	if v.Embedded {
		variant = "files/embed"
	}
	for _, folder := range []string{"files/common", variant} {
		entries, err := files.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			t, err := template.ParseFS(files, path.Join(folder, e.Name()))
			if err != nil {
				return nil, err
			}
			var b strings.Builder
			if err := t.Execute(&b, v); err != nil {
				return nil, err
			}
			name := strings.TrimSuffix(e.Name(), ".tmpl")
			if name == "gitignore" {
				name = ".gitignore"
			}
			made[name] = b.String()
		}
	}
	if v.sums != "" {
		made["go.sum"] = v.sums
	}
	return made, nil
}
