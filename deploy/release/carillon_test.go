//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/mod/modfile"
)

// TestCarillon releases the commit of this checkout for one system: the program prints its version, the bill of
// materials lists its modules, the packaged settings are safe, and the image starts as a user that may write to /data
// only.
func TestCarillon(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it starts the programs for Linux")
	}
	t.Parallel()
	one := []system{{"linux", runtime.GOARCH}}
	dir, out := filepath.Join(t.TempDir(), "checkout"), filepath.Join(t.TempDir(), "dist")
	root, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		t.Fatal(err)
	}
	gitDo(t, ".", "clone", "--quiet", "--no-tags", root, dir)
	const version = "v0.1.0-test.1"
	env, key := keys(t)
	sign, err := loadSigner(func(name string) string { return env[name] }, noPassword)
	if err != nil {
		t.Fatal(err)
	}
	r := release{dir: dir, version: version, out: out, systems: one, sign: sign, log: io.Discard}
	if err := build(r); err != nil {
		t.Fatal(err)
	}
	if err := verify(out, key, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Open(filepath.Join(out, "carillon_0.1.0-test.1_linux_"+runtime.GOARCH+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	folder := "carillon_0.1.0-test.1_linux_" + runtime.GOARCH
	files := readTarGz(t, archive)
	program := filepath.Join(t.TempDir(), "carillon")
	if err := os.WriteFile(program, files[folder+"/carillon"].data, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Run("Version", func(t *testing.T) {
		commit, err := git(dir, "rev-parse", "HEAD")
		if err != nil {
			t.Fatal(err)
		}
		got, err := exec.Command(program, "version").Output()
		want := fmt.Sprintf("carillon %s (%.12s), go", version, commit)
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("carillon version prints %q (%v), want %q", got, err, want)
		}
	})
	t.Run("Licences", func(t *testing.T) {
		text := string(files[folder+"/"+licencesFile].data)
		for _, m := range []string{"nats-io/nats-server/v2", "hashicorp/raft", "go-sql-driver/mysql"} {
			if !strings.Contains(text, "\ngithub.com/"+m+" v") {
				t.Errorf("the licence of %s is missing", m)
			}
		}
	})
	t.Run("SBOM", func(t *testing.T) { checkSBOM(t, filepath.Join(out, folder+".cdx.json"), dir, version) })
	t.Run("PackagedSettings", func(t *testing.T) {
		c := exec.Command(program, "config", "print", "--config", "files/carillon.yaml")
		c.Env = []string{"HOME=" + t.TempDir()}
		got, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, got)
		}
		for _, want := range []string{
			"data: /var/lib/carillon", "auth: on", "addr: 127.0.0.1:8080", "addr: 127.0.0.1:4222",
		} {
			if !strings.Contains(string(got), want+"\n") {
				t.Errorf("the packaged settings have no %q:\n%s", want, got)
			}
		}
	})
	t.Run("Image", func(t *testing.T) {
		file := filepath.Join(out, "carillon_0.1.0-test.1_image.tar")
		checkImage(t, file, "0.1.0-test.1", runtime.GOARCH)
		startImage(t, images(t, file, "0.1.0-test.1")[runtime.GOARCH])
	})
}

// checkSBOM compares the bill of materials with go.mod.
func checkSBOM(t *testing.T, file, checkout, version string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(f, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c.Name != "carillon" || c.Version != version {
		t.Errorf("it is of %s %s", c.Name, c.Version)
	}
	got := map[string]cyclonedx.Component{}
	for _, c := range *bom.Components {
		got[c.Name] = c
	}
	if want := strings.TrimPrefix(runtime.Version(), "go"); got["stdlib"].Version != want {
		t.Errorf("Go is listed as %q, want %s", got["stdlib"].Version, want)
	}
	raw, err := os.ReadFile(filepath.Join(checkout, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.Parse("go.mod", raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for _, m := range parsed.Require {
		c, ok := got[m.Mod.Path]
		if !ok {
			continue // used by tests only
		}
		listed++
		purl := "pkg:golang/" + m.Mod.Path + "@" + strings.ReplaceAll(m.Mod.Version, "+", "%2B")
		if c.Version != m.Mod.Version || c.PackageURL != purl {
			t.Errorf("%s is listed as %s %s", m.Mod, c.Version, c.PackageURL)
		}
	}
	for _, name := range []string{"nats-io/nats-server/v2", "hashicorp/raft", "jackc/pgx/v5"} {
		if got["github.com/"+name].Version == "" {
			t.Errorf("%s is not listed", name)
		}
	}
	if listed < 30 || len(*(*bom.Dependencies)[0].Dependencies) != len(got) {
		t.Errorf("%d modules of go.mod are listed, and %d dependencies of %d components",
			listed, len(*(*bom.Dependencies)[0].Dependencies), len(got))
	}
}

// startImage starts an image's command in its files, as its user. That user owns /data only, so that a write to any
// other place fails, as with a read-only root; and /data is new, as in a fresh volume.
func startImage(t *testing.T, img v1.Image) {
	if os.Getuid() != 0 {
		missing(t, "root, to change the root directory and the user")
	}
	root := unpack(t, rootfs(t, img))
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var uid, gid uint32
	if _, err := fmt.Sscanf(config.Config.User, "%d:%d", &uid, &gid); err != nil {
		t.Fatal(err)
	}
	web := freeAddr(t)
	command := append(config.Config.Entrypoint, config.Config.Cmd...)
	for i, arg := range command {
		switch arg {
		case "0.0.0.0:8080":
			command[i] = web
		case "0.0.0.0:4222":
			command[i] = "127.0.0.1:0"
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Dir, c.Env = config.Config.WorkingDir, append(config.Config.Env, "CARILLON_AUTH=on")
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for ready := false; !ready; {
		select {
		case err := <-ended:
			t.Fatalf("the server ended: %v\n%s", err, log.String())
		case <-time.After(100 * time.Millisecond):
		}
		if res, err := http.Get("http://" + web + "/readyz"); err == nil {
			res.Body.Close()
			ready = res.StatusCode == http.StatusOK
		}
	}
	res, err := http.Get("http://" + web + "/api/v1/runs")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token, the API responds %d", res.StatusCode)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended: %v\n%s", err, log.String())
	}
	token, err := os.Stat(filepath.Join(root, "data/admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	if s := token.Sys().(*syscall.Stat_t); s.Uid != uid || token.Mode().Perm() != 0o600 {
		t.Errorf("admin.token belongs to %d and has mode %v", s.Uid, token.Mode())
	}
}

// unpack writes the files of an image, with their owners. /tmp is not writable, as with a read-only root.
func unpack(t *testing.T, files map[string]member) string {
	t.Helper()
	root := t.TempDir()
	for dir := root; len(dir) > 1; dir = filepath.Dir(dir) { // the user must reach it
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o011 != 0o011 {
			if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, m := range files {
		path := filepath.Join(root, name)
		if m.Typeflag == '5' {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		put(t, path, string(m.data))
	}
	for name, m := range files {
		path, mode := filepath.Join(root, name), os.FileMode(m.Mode).Perm()
		if name == "tmp" {
			mode = 0o555
		}
		if err := os.Chown(path, m.Uid, m.Gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
