package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestToy checks the form of everything that is published, on a toy for all systems.
func TestToy(t *testing.T) {
	dir, out := toy(t), filepath.Join(t.TempDir(), "dist")
	if err := build(release{dir: dir, version: "v0.1.0", out: out, systems: all, log: io.Discard}); err != nil {
		t.Fatal(err)
	}
	t.Run("Files", func(t *testing.T) {
		names, err := listFiles(out)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"SHA256SUMS",
			"carillon_0.1.0_darwin_amd64.cdx.json", "carillon_0.1.0_darwin_amd64.tar.gz",
			"carillon_0.1.0_darwin_arm64.cdx.json", "carillon_0.1.0_darwin_arm64.tar.gz",
			"carillon_0.1.0_image.tar",
			"carillon_0.1.0_linux_amd64.cdx.json", "carillon_0.1.0_linux_amd64.deb", "carillon_0.1.0_linux_amd64.rpm",
			"carillon_0.1.0_linux_amd64.tar.gz",
			"carillon_0.1.0_linux_arm64.cdx.json", "carillon_0.1.0_linux_arm64.deb", "carillon_0.1.0_linux_arm64.rpm",
			"carillon_0.1.0_linux_arm64.tar.gz",
			"carillon_0.1.0_windows_amd64.cdx.json", "carillon_0.1.0_windows_amd64.zip",
			"carillon_0.1.0_windows_arm64.cdx.json", "carillon_0.1.0_windows_arm64.zip",
		}
		if !slices.Equal(names, want) {
			t.Errorf("the release has\n%q, want\n%q", names, want)
		}
	})
	for _, s := range all {
		t.Run(s.os+"_"+s.arch, func(t *testing.T) { checkArchive(t, out, s) })
	}
	for _, arch := range []string{"amd64", "arm64"} {
		base := filepath.Join(out, "carillon_0.1.0_linux_"+arch)
		t.Run("deb_"+arch, func(t *testing.T) { checkDeb(t, base+".deb", arch) })
		t.Run("rpm_"+arch, func(t *testing.T) { checkRPM(t, base+".rpm", arch) })
	}
	t.Run("Image", func(t *testing.T) {
		checkImage(t, filepath.Join(out, "carillon_0.1.0_image.tar"), "0.1.0", "amd64", "arm64")
	})
	t.Run("Push", func(t *testing.T) { checkPush(t, filepath.Join(out, "carillon_0.1.0_image.tar")) })
	t.Run("Again", func(t *testing.T) {
		if err := os.Mkdir(filepath.Join(out, "chart"), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(out, "stranger"), "x")
		again := release{dir: dir, version: "v0.2.0", out: out, systems: all[:1], log: io.Discard}
		refused(t, build(again), "stranger is not part of a release")
		if err := os.Remove(filepath.Join(out, "stranger")); err != nil {
			t.Fatal(err)
		}
		if err := build(again); err != nil {
			t.Fatal(err)
		}
		names, err := listFiles(out)
		want := []string{"SHA256SUMS", "carillon_0.2.0_image.tar", "carillon_0.2.0_linux_amd64.cdx.json",
			"carillon_0.2.0_linux_amd64.deb", "carillon_0.2.0_linux_amd64.rpm", "carillon_0.2.0_linux_amd64.tar.gz"}
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("after another release there is %q (%v), want %q", names, err, want)
		}
	})
}

// checkProgram checks the version and the system of a program, and runs it where it can.
func checkProgram(t *testing.T, raw []byte, s system) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if info.Main.Version != "v0.1.0" {
		t.Errorf("the program has version %q", info.Main.Version)
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.modified" && s.Value != "false" {
			t.Error("the program is of a modified commit")
		}
	}
	if s.os != runtime.GOOS || s.arch != runtime.GOARCH {
		return
	}
	file := filepath.Join(t.TempDir(), "carillon")
	if err := os.WriteFile(file, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := exec.Command(file).CombinedOutput(); err != nil || string(got) != "toy\n" {
		t.Errorf("the program prints %q: %v", got, err)
	}
}

func checkArchive(t *testing.T, out string, s system) {
	folder := "carillon_0.1.0_" + s.os + "_" + s.arch
	texts := []string{"README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", licencesFile}
	if s.os == "windows" {
		got := readZip(t, filepath.Join(out, folder+".zip"))
		for _, name := range append(texts, "carillon.exe") {
			f := got[path.Join(folder, name)]
			if f == nil {
				t.Fatalf("no %s", name)
			}
			if !f.Modified.Equal(toyDay) {
				t.Errorf("%s is of %v", name, f.Modified)
			}
		}
		r, err := got[folder+"/carillon.exe"].Open()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		checkProgram(t, raw, s)
		return
	}
	raw, err := os.ReadFile(filepath.Join(out, folder+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	got := readTarGz(t, bytes.NewReader(raw))
	if len(got) != len(texts)+2 {
		t.Errorf("the archive has %d members", len(got))
	}
	for _, name := range append(texts, "carillon") {
		m, ok := got[path.Join(folder, name)]
		want := fs.FileMode(0o644)
		if name == "carillon" {
			want = 0o755
		}
		if !ok || fs.FileMode(m.Mode) != want || m.Uid != 0 || m.Gid != 0 || !m.ModTime.Equal(toyDay) {
			t.Errorf("%s: %v, mode %o, owner %d:%d, of %v", name, ok, m.Mode, m.Uid, m.Gid, m.ModTime)
		}
	}
	if text := string(got[folder+"/"+licencesFile].data); !strings.Contains(text, "Copyright 2009 The Go Authors") {
		t.Error("the licence of Go is missing")
	}
	checkProgram(t, got[folder+"/carillon"].data, s)
}

// installed is what a package must install, with mode, owner and group.
var installed = map[string]string{
	"usr/bin/carillon":                            "0755 root root",
	"usr/lib/systemd/system/carillon.service":     "0644 root root",
	"etc/carillon":                                "0755 root root",
	"etc/carillon/carillon.yaml":                  "0640 root carillon",
	"var/lib/carillon":                            "0700 carillon carillon",
	"usr/share/doc/carillon/README.md":            "0644 root root",
	"usr/share/doc/carillon/CHANGELOG.md":         "0644 root root",
	"usr/share/doc/carillon/SECURITY.md":          "0644 root root",
	"usr/share/doc/carillon/copyright":            "0644 root root",
	"usr/share/doc/carillon/" + licencesFile:      "0644 root root",
	"usr/share/licenses/carillon/LICENSE":         "0644 root root",
	"usr/share/licenses/carillon/" + licencesFile: "0644 root root",
}

func checkDeb(t *testing.T, file, arch string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := readAr(t, raw)
	if got := string(parts["debian-binary"]); got != "2.0\n" {
		t.Errorf("debian-binary is %q", got)
	}
	control := readTarGz(t, bytes.NewReader(parts["control.tar.gz"]))
	for _, want := range []string{"Package: carillon", "Version: 0.1.0", "Architecture: " + arch, "Pre-Depends: passwd"} {
		if !strings.Contains(string(control["control"].data), want+"\n") {
			t.Errorf("control has no %q:\n%s", want, control["control"].data)
		}
	}
	if got := string(control["conffiles"].data); got != "/etc/carillon/carillon.yaml\n" {
		t.Errorf("conffiles are %q", got)
	}
	for _, script := range []string{"preinstall", "postinstall", "preremove", "postremove"} {
		name := strings.NewReplacer("install", "inst", "remove", "rm").Replace(script)
		want, err := os.ReadFile("files/" + script + ".sh")
		if err != nil {
			t.Fatal(err)
		}
		if m := control[name]; !bytes.Equal(m.data, want) || m.Mode&0o111 == 0 {
			t.Errorf("%s has mode %o and %d bytes", name, m.Mode, len(m.data))
		}
	}
	data := readTarGz(t, bytes.NewReader(parts["data.tar.gz"]))
	for name, m := range data {
		want, ok := installed[name]
		if got := ownership(fs.FileMode(m.Mode), m.Uname, m.Gname); ok && got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		} else if !ok && m.Typeflag != '5' {
			t.Errorf("%s is not expected", name)
		}
		if !m.ModTime.Equal(toyDay) {
			t.Errorf("%s is of %v", name, m.ModTime)
		}
	}
	for name := range installed {
		if _, ok := data[name]; !ok && !strings.Contains(name, "/licenses/") {
			t.Errorf("%s is missing", name)
		}
	}
	checkProgram(t, data["usr/bin/carillon"].data, system{"linux", arch})
}

func ownership(mode fs.FileMode, user, group string) string {
	return fmt.Sprintf("%04o %s %s", mode.Perm(), user, group)
}

// Two builds in different folders, time zones and environments give the same bytes, and compare finds one that
// differs.
func TestReproducible(t *testing.T) {
	first := toy(t)
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	second := filepath.Join(t.TempDir(), "another", "longer path", "clone")
	gitDo(t, first, "clone", "--quiet", first, second)
	systems, err := choose("linux/amd64,windows/arm64")
	if err != nil {
		t.Fatal(err)
	}
	if err := build(release{dir: first, version: "v0.1.0", out: one, systems: systems, log: io.Discard}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOARM64", "v9.0")
	t.Setenv("CGO_ENABLED", "1")
	t.Setenv("GOEXPERIMENT", "nogreenteagc")
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	t.Setenv("TZ", "Pacific/Auckland")
	zone := time.Local
	time.Local = time.FixedZone("far", 13*3600)
	defer func() { time.Local = zone }()
	defer umask(0o077)()
	if err := build(release{dir: second, version: "v0.1.0", out: two, systems: systems, log: io.Discard}); err != nil {
		t.Fatal(err)
	}
	n, err := compare(one, two)
	if err != nil {
		t.Error(err)
	}
	if n != 8 {
		t.Errorf("%d files are compared, want 8", n)
	}
	file := filepath.Join(two, "carillon_0.1.0_linux_amd64.deb")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw[1000] ^= 1
	put(t, file, string(raw))
	_, err = compare(one, two)
	refused(t, err, "carillon_0.1.0_linux_amd64.deb", "first difference at 1000")
}
