package main

import (
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// packageFiles are the files of this folder that packages contain.
const packageFiles = "deploy/release/files"

// writePackages writes a program for Linux as base.deb and base.rpm. Of a prerelease, the usual names of packages have
// a ~, which GitHub replaces in names of published files.
func writePackages(base, number, clone string, p built, texts []text, when time.Time) error {
	dir, err := os.MkdirTemp("", "carillon-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, t := range texts {
		if err := os.WriteFile(filepath.Join(dir, t.name), t.data, 0o600); err != nil {
			return err
		}
	}
	for ending, packager := range map[string]nfpm.Packager{".deb": deb.Default, ".rpm": rpm.DefaultRPM} {
		info := describe(number, clone, dir, p, ending == ".rpm")
		info.MTime = when
		info = nfpm.WithDefaults(info)
		if err := write(base+ending, func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
			return err
		}
	}
	return nil
}

// describe returns what a package contains. Each file has its owner and mode here, so that the umask does not matter.
func describe(number, clone, dir string, p built, isRPM bool) *nfpm.Info {
	own := filepath.Join(clone, filepath.FromSlash(packageFiles))
	unit := filepath.Join(own, "carillon.service")
	settings := filepath.Join(own, "carillon.yaml")
	file := func(from, to, kind string, mode os.FileMode, group string) *files.Content {
		return &files.Content{Source: from, Destination: to, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: group, Mode: mode}}
	}
	contents := files.Contents{
		file(p.file, "/usr/bin/carillon", files.TypeFile, 0o755, "root"),
		file(unit, "/usr/lib/systemd/system/carillon.service", files.TypeFile, 0o644, "root"),
		file(settings, "/etc/carillon/carillon.yaml", files.TypeConfigNoReplace, 0o640, "carillon"),
		{Destination: "/etc/carillon", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755}},
		{Destination: "/var/lib/carillon", Type: files.TypeDir,
			FileInfo: &files.ContentFileInfo{Owner: "carillon", Group: "carillon", Mode: 0o700}},
	}
	doc := func(name, to, kind string) {
		contents = append(contents, file(filepath.Join(dir, name), to, kind, 0o644, "root"))
	}
	doc("README.md", "/usr/share/doc/carillon/README.md", files.TypeFile)
	doc("CHANGELOG.md", "/usr/share/doc/carillon/CHANGELOG.md", files.TypeFile)
	doc("SECURITY.md", "/usr/share/doc/carillon/SECURITY.md", files.TypeFile)
	info := &nfpm.Info{
		Name: "carillon", Arch: p.arch, Platform: "linux", Version: number,
		Section: "admin", Priority: "optional", License: "Apache-2.0", Homepage: "https://" + module,
		Maintainer: "Carillon contributors <carillon-scheduler@users.noreply.github.com>",
		Description: "Distributed job scheduler\n" +
			"Runs recurring and triggered jobs on any number of workers, with a durable\nrecord of every run.",
		DisableGlobbing: true,
	}
	if isRPM {
		doc("LICENSE", "/usr/share/licenses/carillon/LICENSE", files.TypeRPMLicense)
		doc(licencesFile, "/usr/share/licenses/carillon/"+licencesFile, files.TypeRPMLicense)
		info.Depends = []string{"/usr/sbin/useradd"} // its package has another name in each distribution
		info.RPM.BuildHost = "localhost"             // default: the name of the machine
	} else {
		doc("LICENSE", "/usr/share/doc/carillon/copyright", files.TypeFile)
		doc(licencesFile, "/usr/share/doc/carillon/"+licencesFile, files.TypeFile)
		info.Deb.Predepends = []string{"passwd"}
	}
	info.Contents = contents
	info.Scripts = nfpm.Scripts{
		PreInstall:  filepath.Join(own, "preinstall.sh"),
		PostInstall: filepath.Join(own, "postinstall.sh"),
		PreRemove:   filepath.Join(own, "preremove.sh"),
		PostRemove:  filepath.Join(own, "postremove.sh"),
	}
	return info
}
