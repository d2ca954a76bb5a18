package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"aead.dev/minisign"
	"golang.org/x/term"
)

const (
	sumsFile      = "SHA256SUMS"
	signatureFile = sumsFile + ".minisig"
)

// signer signs the checksums in a folder.
type signer func(dir, version string) error

// loadSigner reads the secret key, so that a wrong password is reported before anything is built.
func loadSigner(getenv func(string) string, ask func() (string, error)) (signer, error) {
	file, text := getenv("CARILLON_SIGNING_KEY_FILE"), []byte(getenv("CARILLON_SIGNING_KEY"))
	switch {
	case file == "" && len(text) == 0:
		return nil, errors.New("no signing key: set CARILLON_SIGNING_KEY_FILE or CARILLON_SIGNING_KEY, or pass -unsigned")
	case file != "" && len(text) > 0:
		return nil, errors.New("two signing keys: set CARILLON_SIGNING_KEY_FILE or CARILLON_SIGNING_KEY, not both")
	case file != "":
		var err error
		if text, err = readSecret(file); err != nil {
			return nil, err
		}
	}
	key, err := decryptKey(text, getenv("CARILLON_SIGNING_PASSWORD"), ask)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	return func(dir, version string) error {
		sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
		if err != nil {
			return err
		}
		// No time in the comment: the same checksums and key give the same signature.
		signature := minisign.SignWithComments(key, sums, "carillon "+version, "signature of "+sumsFile)
		return os.WriteFile(filepath.Join(dir, signatureFile), signature, 0o644)
	}, nil
}

// readSecret reads a file that only its owner may read.
func readSecret(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others can access the signing key %s (mode %04o): chmod 600", file, info.Mode().Perm())
	}
	return os.ReadFile(file)
}

func decryptKey(text []byte, password string, ask func() (string, error)) (key minisign.PrivateKey, err error) {
	if !minisign.IsEncrypted(text) {
		return key, key.UnmarshalText(text)
	}
	if password == "" {
		if password, err = ask(); err != nil {
			return key, err
		}
	}
	if key, err = minisign.DecryptKey(password, text); err != nil {
		return key, fmt.Errorf("wrong password, or damaged: %w", err)
	}
	return key, nil
}

// askPassword reads a password from the terminal.
func askPassword() (string, error) {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return "", errors.New("it needs a password: set CARILLON_SIGNING_PASSWORD")
	}
	fmt.Fprint(os.Stderr, "Password of the signing key: ")
	defer fmt.Fprintln(os.Stderr)
	password, err := term.ReadPassword(int(os.Stdin.Fd()))
	return string(password), err
}

// writeSums writes the checksums of all files in a folder, as sha256sum does.
func writeSums(dir string) error {
	names, err := listFiles(dir)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, name := range names {
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, name)
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), b.Bytes(), 0o644)
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// readSums returns the checksums in a folder, by the names of files.
func readSums(dir string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok || len(sum) != 64 || name != filepath.Base(name) || sums[name] != "" {
			return nil, fmt.Errorf("%s: invalid line %q", sumsFile, lines.Text())
		}
		sums[name] = sum
	}
	if len(sums) == 0 {
		return nil, fmt.Errorf("%s in %s is empty", sumsFile, dir)
	}
	return sums, nil
}

// verify checks a release: the signature of its checksums, each file's checksum, and that no file is unlisted.
func verify(dir, key string, unsigned bool, to io.Writer) error {
	by := "not signed"
	if !unsigned {
		var err error
		if by, err = verifySignature(dir, key); err != nil {
			return err
		}
	}
	sums, err := readSums(dir)
	if err != nil {
		return err
	}
	names, err := listFiles(dir)
	if err != nil {
		return err
	}
	var wrong []error
	for _, name := range names {
		if name == sumsFile || name == signatureFile {
			continue
		}
		sum, err := sumOf(filepath.Join(dir, name))
		switch {
		case err != nil:
			wrong = append(wrong, err)
		case sums[name] == "":
			wrong = append(wrong, fmt.Errorf("%s: not listed in %s", name, sumsFile))
		case sum != sums[name]:
			wrong = append(wrong, fmt.Errorf("%s: wrong checksum", name))
		}
	}
	for name := range sums {
		if !slices.Contains(names, name) {
			wrong = append(wrong, fmt.Errorf("%s: missing", name))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	fmt.Fprintf(to, "%d files match their checksums; %s\n", len(sums), by)
	return nil
}

// verifySignature returns by whom the checksums are signed, and as what.
func verifySignature(dir, key string) (string, error) {
	public, err := publicKey(key)
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, signatureFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s has no signature: %w", dir, err)
	} else if err != nil {
		return "", err
	}
	if !minisign.Verify(public, sums, text) {
		return "", fmt.Errorf("%s is not a signature of %s by key %X", signatureFile, sumsFile, public.ID())
	}
	var signature minisign.Signature
	if err := signature.UnmarshalText(text); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, signed by key %X", signature.TrustedComment, public.ID()), nil
}

// publicKey reads a key, or a file with one.
func publicKey(key string) (public minisign.PublicKey, err error) {
	if key == "" {
		return public, errors.New("no public key: pass -key with a key or a file, or -unsigned")
	}
	if err := public.UnmarshalText([]byte(key)); err == nil {
		return public, nil
	}
	if public, err = minisign.PublicKeyFromFile(key); err != nil {
		return public, fmt.Errorf("invalid public key %q: want a key of minisign, or a file with one: %w", key, err)
	}
	return public, nil
}
