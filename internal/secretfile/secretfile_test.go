//go:build unix

package secretfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPrivate(t *testing.T) {
	for _, c := range []struct {
		mode       fs.FileMode
		ofRoot, of bool // whether root's file, and that of another user, is private
	}{
		{0o600, true, true}, {0o400, true, true}, {0o700, true, true},
		{0o440, true, false}, {0o640, true, false},
		{0o660, false, false}, {0o644, false, false}, {0o604, false, false}, {0o620, false, false}, {0o650, false, false},
	} {
		if private(c.mode, true) != c.ofRoot || private(c.mode, false) != c.of {
			t.Errorf("%v: private of root %v, of another user %v", c.mode, private(c.mode, true), private(c.mode, false))
		}
	}
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err == nil || !strings.Contains(err.Error(), path+" is readable by other users (-rw-r--r--): chmod 600 it") {
		t.Errorf("a file for all: %v", err)
	}
	if err := Check(path + "-missing"); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root can make a file of another user")
	}
	if err := os.Chmod(path, 0o440); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err != nil {
		t.Errorf("a file of root for its group: %v", err)
	}
	if err := os.Chown(path, 65532, 65532); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err == nil {
		t.Error("a user's file for its group is accepted")
	}
}
