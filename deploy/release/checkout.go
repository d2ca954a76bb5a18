package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// checkVersion refuses versions that Go cannot stamp into a program of this module.
func checkVersion(version string) error {
	switch {
	case !semver.IsValid(version) || semver.Canonical(version) != version:
		return fmt.Errorf("invalid version %q: want vMAJOR.MINOR.PATCH or vMAJOR.MINOR.PATCH-PRERELEASE, such as v0.1.0",
			version)
	case semver.Major(version) != "v0" && semver.Major(version) != "v1":
		return fmt.Errorf("invalid version %q: the module path of %s needs the suffix /%s",
			version, module, semver.Major(version))
	}
	return nil
}

// source is the commit that is released.
type source struct {
	root   string // of the checkout
	commit string
	when   time.Time // of the commit; every file of a release has this time
}

// inspect returns the commit at HEAD. It refuses a checkout that differs from its commit, and a version that
// contradicts a tag.
func inspect(dir, version string) (source, error) {
	if err := checkVersion(version); err != nil {
		return source{}, err
	}
	root, err := git(dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return source{}, err
	}
	changed, err := git(root, "status", "--porcelain=v1", "--untracked-files=all")
	if err != nil {
		return source{}, err
	}
	if changed != "" {
		return source{}, fmt.Errorf("%s has changes that no commit contains: commit or remove them:\n%s",
			root, first(changed, 20))
	}
	commit, err := git(root, "rev-parse", "HEAD")
	if err != nil {
		return source{}, err
	}
	if err := checkTags(root, commit, version); err != nil {
		return source{}, err
	}
	stamp, err := git(root, "log", "-1", "--format=%ct")
	if err != nil {
		return source{}, err
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	return source{root: root, commit: commit, when: time.Unix(seconds, 0).UTC()}, err
}

// checkTags refuses a version if HEAD has the tag of another one, or if another commit has the version's tag.
func checkTags(root, commit, version string) error {
	tags, err := git(root, "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	var versions []string
	for tag := range strings.FieldsSeq(tags) {
		if semver.IsValid(tag) {
			versions = append(versions, tag)
		}
	}
	if len(versions) > 0 && !slices.Contains(versions, version) {
		return fmt.Errorf("HEAD has the tag %s, not %s: check out another commit, or release %[1]s",
			strings.Join(versions, ", "), version)
	}
	tagged, err := git(root, "rev-parse", "--verify", "--quiet", "refs/tags/"+version+"^{commit}")
	if err == nil && tagged != commit {
		return fmt.Errorf("tag %s names commit %.12s, and HEAD is %.12s: check out %[1]s", version, tagged, commit)
	}
	return nil
}

// first returns at most n lines, and the number of the others.
func first(text string, n int) string {
	lines := strings.Split(text, "\n")
	if len(lines) <= n {
		return text
	}
	return fmt.Sprintf("%s\n... and %d more", strings.Join(lines[:n], "\n"), len(lines)-n)
}

// clone writes the commit to dir, with the version as its only tag. Programs are built there: the clone has no ignored
// or generated files, and Go takes a program's version from the tag.
func (s source) clone(dir, version string) error {
	if _, err := git(s.root, "clone", "--quiet", "--no-checkout", "--no-tags", "-c", "core.autocrlf=false",
		"-c", "core.hooksPath=/dev/null", s.root, dir); err != nil {
		return err
	}
	if _, err := git(dir, "checkout", "--quiet", "--detach", s.commit); err != nil {
		return err
	}
	_, err := git(dir, "-c", "tag.gpgSign=false", "tag", version)
	return err
}

// git runs git and returns its output without the last newline.
func git(dir string, args ...string) (string, error) {
	c := exec.Command("git", args...)
	c.Dir, c.Env = dir, environment()
	out, err := c.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("git %s in %s: %w: %s", args[0], dir, err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimRight(string(out), "\n"), err
}

// environment is that of this process without signing secrets, without variables that lead git elsewhere, and without
// experiments of Go.
func environment(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CARILLON_SIGNING_") || strings.HasPrefix(v, "GIT_") ||
			strings.HasPrefix(v, "GOEXPERIMENT=")
	})
	return append(env, append(more, "GIT_OPTIONAL_LOCKS=0")...)
}

// read returns a file of a clone.
func read(clone, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(clone, filepath.FromSlash(name)))
}
