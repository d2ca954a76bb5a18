package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// module is what programs are built from.
const module = "github.com/carillon-scheduler/carillon"

// system is what a program runs on.
type system struct{ os, arch string }

func (s system) String() string { return s.os + "/" + s.arch }

// program is the name of the program's file.
func (s system) program() string {
	if s.os == "windows" {
		return "carillon.exe"
	}
	return "carillon"
}

// all are the systems of a release.
var all = []system{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// choose returns the named systems; all if the list is empty.
func choose(list string) (some []system, err error) {
	if list == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(s system) bool { return s.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("invalid system %q: want one of %v", name, all)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// release is what build needs.
type release struct {
	dir     string // in the checkout
	version string // such as v0.1.0
	out     string
	systems []system
	sign    signer // nil: unsigned
	cache   string // of go build; "": the user's
	log     io.Writer
}

// number is the version without the v, for names of files.
func (r release) number() string { return strings.TrimPrefix(r.version, "v") }

// built is a program and what describes it.
type built struct {
	system
	file string // the program
	info *buildinfo.BuildInfo
}

// build writes a release into r.out, in place of a former one.
func build(r release) error {
	from, err := inspect(r.dir, r.version)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "carillon-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	clone, made := filepath.Join(temp, "clone"), filepath.Join(temp, "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return err
	}
	if err := from.clone(clone, r.version); err != nil {
		return err
	}
	var programs []built
	for _, s := range r.systems {
		began := time.Now()
		p, err := r.compile(from, s, clone, filepath.Join(temp, "programs", s.os+"_"+s.arch))
		if err != nil {
			return err
		}
		programs = append(programs, p)
		fmt.Fprintf(r.log, "%-14s %s, %s, %.0f s\n", s, r.version, p.info.GoVersion, time.Since(began).Seconds())
	}
	if err := r.pack(from, clone, programs, made); err != nil {
		return err
	}
	if err := writeSums(made); err != nil {
		return err
	}
	if r.sign != nil {
		if err := r.sign(made, r.version); err != nil {
			return err
		}
	}
	names, err := replace(r.out, made)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.log, "%d files in %s\n", len(names), r.out)
	if r.sign == nil {
		fmt.Fprintln(r.log, "not signed")
	}
	return nil
}

// compile builds the program for a system. Every variable that changes its bytes is set here.
func (r release) compile(from source, s system, clone, dir string) (built, error) {
	file := filepath.Join(dir, s.program())
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", file, "./cmd/carillon")
	c.Dir = clone
	c.Env = environment("CGO_ENABLED=0", "GOOS="+s.os, "GOARCH="+s.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off",
		"GOFLAGS=-mod=readonly", "GOWORK=off")
	if r.cache != "" {
		c.Env = append(c.Env, "GOCACHE="+r.cache)
	}
	if out, err := c.CombinedOutput(); err != nil {
		return built{}, fmt.Errorf("go build for %s: %w\n%s", s, err, out)
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return built{}, err
	}
	return built{s, file, info}, checkStamp(info, from.commit, r.version)
}

// checkStamp refuses a program that would print another version or commit.
func checkStamp(info *buildinfo.BuildInfo, commit, version string) error {
	if strings.Contains(info.GoVersion, "X:") {
		return fmt.Errorf("the program is built with experiments of Go (%s): remove GOEXPERIMENT", info.GoVersion)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if info.Main.Version != version || settings["vcs.revision"] != commit || settings["vcs.modified"] != "false" {
		return fmt.Errorf("the program has version %q of commit %q (modified: %s), want %s of %s",
			info.Main.Version, settings["vcs.revision"], settings["vcs.modified"], version, commit)
	}
	return nil
}

// pack writes what is published of programs.
func (r release) pack(from source, clone string, programs []built, to string) error {
	texts, err := readTexts(clone, programs)
	if err != nil {
		return err
	}
	var linux []built
	for _, p := range programs {
		name := fmt.Sprintf("carillon_%s_%s_%s", r.number(), p.os, p.arch)
		if err := writeArchive(filepath.Join(to, name), p, texts, from.when); err != nil {
			return err
		}
		if err := writeSBOM(filepath.Join(to, name+".cdx.json"), r.version, p, from.when); err != nil {
			return err
		}
		if p.os != "linux" {
			continue
		}
		linux = append(linux, p)
		if err := writePackages(filepath.Join(to, name), r.number(), clone, p, texts, from.when); err != nil {
			return err
		}
	}
	if len(linux) == 0 {
		return nil
	}
	return writeImage(filepath.Join(to, "carillon_"+r.number()+"_image.tar"), r.version, from, linux, texts)
}

// replace moves the files of made to out, in place of those that the checksums of a former release list. Other files
// in out would look like part of the release, so it refuses them; it leaves folders alone.
func replace(out, made string) ([]string, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	former, err := listFiles(out)
	if err != nil {
		return nil, err
	}
	listed := []string{sumsFile, signatureFile}
	if sums, err := readSums(out); err == nil {
		for name := range sums {
			listed = append(listed, name)
		}
	}
	for _, name := range former {
		if !slices.Contains(listed, name) {
			return nil, fmt.Errorf("%s is not part of a release: move it", filepath.Join(out, name))
		}
	}
	for _, name := range former {
		if err := os.Remove(filepath.Join(out, name)); err != nil {
			return nil, err
		}
	}
	names, err := listFiles(made)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := copyFile(filepath.Join(made, name), filepath.Join(out, name)); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// listFiles returns the names of the files in a folder, without its folders, sorted.
func listFiles(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return write(to, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

// write creates a file.
func write(name string, content func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := content(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return f.Close()
}
