package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
)

// keys returns the environment with a new signing key, and the public key.
func keys(t *testing.T) (map[string]string, string) {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := private.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"CARILLON_SIGNING_KEY": string(text)}, public.String()
}

func noPassword() (string, error) { return "", errors.New("no terminal") }

// signed returns a folder with two files and signed checksums, and the public key.
func signed(t *testing.T) (dir, key string) {
	t.Helper()
	env, key := keys(t)
	sign, err := loadSigner(func(name string) string { return env[name] }, noPassword)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	put(t, filepath.Join(dir, "a.tar.gz"), "first")
	put(t, filepath.Join(dir, "b.deb"), "second")
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	if err := sign(dir, "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	return dir, key
}

// Verify accepts what was signed, and notices every change.
func TestVerify(t *testing.T) {
	dir, key := signed(t)
	var out strings.Builder
	if err := verify(dir, key, false, &out); err != nil {
		t.Fatal(err)
	}
	if want := "2 files match their checksums; carillon v0.1.0, signed by key "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("verify prints %q, want %q", out.String(), want)
	}
	keyFile := filepath.Join(t.TempDir(), "key.pub")
	put(t, keyFile, "untrusted comment: minisign public key\n"+key+"\n")
	if err := verify(dir, keyFile, false, io.Discard); err != nil {
		t.Errorf("with a key in a file: %v", err)
	}
	_, other := keys(t)
	refused(t, verify(dir, other, false, io.Discard), "is not a signature of SHA256SUMS by key")
	refused(t, verify(dir, "", false, io.Discard), "no public key")
	refused(t, verify(dir, "RWabc", false, io.Discard), `invalid public key "RWabc"`)

	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"a byte of a file": {func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "b.deb"), "Second")
		}, "b.deb: wrong checksum"},
		"a missing file": {func(t *testing.T, dir string) { remove(t, dir, "a.tar.gz") }, "a.tar.gz: missing"},
		"an added file":  {func(t *testing.T, dir string) { put(t, filepath.Join(dir, "c"), "third") }, "c: not listed"},
		"no signature":   {func(t *testing.T, dir string) { remove(t, dir, signatureFile) }, "has no signature"},
		"new checksums": {func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "b.deb"), "Second")
			remove(t, dir, sumsFile)
			sig := filepath.Join(dir, signatureFile)
			text, err := os.ReadFile(sig)
			if err != nil {
				t.Fatal(err)
			}
			remove(t, dir, signatureFile)
			if err := writeSums(dir); err != nil {
				t.Fatal(err)
			}
			put(t, sig, string(text))
		}, "is not a signature of SHA256SUMS"},
		"the signed version": {func(t *testing.T, dir string) {
			sig := filepath.Join(dir, signatureFile)
			text, err := os.ReadFile(sig)
			if err != nil {
				t.Fatal(err)
			}
			put(t, sig, strings.Replace(string(text), "v0.1.0", "v0.2.0", 1))
		}, "is not a signature of SHA256SUMS"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, key := signed(t)
			c.change(t, dir)
			refused(t, verify(dir, key, false, io.Discard), c.want)
		})
	}
	remove(t, dir, signatureFile)
	if err := verify(dir, "", true, io.Discard); err != nil {
		t.Errorf("checksums only: %v", err)
	}
	put(t, filepath.Join(dir, sumsFile), strings.Repeat("0", 64)+"  ../elsewhere\n")
	refused(t, verify(dir, "", true, io.Discard), "invalid line")
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func load(env map[string]string, ask func() (string, error)) error {
	_, err := loadSigner(func(name string) string { return env[name] }, ask)
	return err
}

// A release needs a key that only its owner can read, or an explicit -unsigned.
func TestSigningKey(t *testing.T) {
	for _, name := range []string{"CARILLON_SIGNING_KEY", "CARILLON_SIGNING_KEY_FILE"} {
		t.Setenv(name, "")
	}
	refused(t, run([]string{"build", "v0.1.0"}, io.Discard), "no signing key", "-unsigned")
	plain, _ := keys(t)
	file := filepath.Join(t.TempDir(), "key")
	put(t, file, plain["CARILLON_SIGNING_KEY"])
	refused(t, load(map[string]string{"CARILLON_SIGNING_KEY_FILE": file}, noPassword), "others can access", "chmod 600")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := load(map[string]string{"CARILLON_SIGNING_KEY_FILE": file}, noPassword); err != nil {
		t.Error(err)
	}
	both := map[string]string{"CARILLON_SIGNING_KEY_FILE": file, "CARILLON_SIGNING_KEY": "x"}
	refused(t, load(both, noPassword), "two signing keys")
	refused(t, load(map[string]string{"CARILLON_SIGNING_KEY": "x"}, noPassword), "signing key")
}

// An encrypted key needs its password, from the environment or the terminal.
func TestPassword(t *testing.T) {
	t.Parallel() // each use of a password takes seconds
	_, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := minisign.EncryptKey("right", private)
	if err != nil {
		t.Fatal(err)
	}
	locked := map[string]string{"CARILLON_SIGNING_KEY": string(text)}
	refused(t, load(locked, noPassword), "no terminal")
	if err := load(locked, func() (string, error) { return "right", nil }); err != nil {
		t.Errorf("with the password from the terminal: %v", err)
	}
	locked["CARILLON_SIGNING_PASSWORD"] = "wrong"
	refused(t, load(locked, noPassword), "wrong password")
}
