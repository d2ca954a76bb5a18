package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// text is a file that accompanies every program.
type text struct {
	name string
	data []byte
}

// licencesFile has the licences of everything that is linked.
const licencesFile = "THIRD-PARTY-LICENSES.txt"

func readTexts(clone string, programs []built) (texts []text, err error) {
	for _, name := range []string{"README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"} {
		data, err := read(clone, name)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text{name, data})
	}
	licences, err := collectLicences(clone, programs)
	return append(texts, text{licencesFile, licences}), err
}

// find returns the text of a name.
func find(texts []text, name string) []byte {
	for _, t := range texts {
		if t.name == name {
			return t.data
		}
	}
	panic("no text " + name)
}

var licenceNames = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// collectLicences returns the licences of Go and of all modules that are linked in any of the programs. A module
// without one fails the release, because it may not be distributed.
func collectLicences(clone string, programs []built) ([]byte, error) {
	linked := map[string]bool{}
	for _, p := range programs {
		for _, d := range p.info.Deps {
			linked[d.Path] = true
		}
	}
	paths := slices.Sorted(maps.Keys(linked))
	root, err := goOutput(clone, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	type part struct{ name, dir string }
	parts := []part{{"Go " + strings.TrimPrefix(programs[0].info.GoVersion, "go"), root}}
	if len(paths) > 0 {
		args := append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}"}, paths...)
		list, err := goOutput(clone, args...)
		if err != nil {
			return nil, err
		}
		for line := range strings.SplitSeq(list, "\n") {
			name, dir, _ := strings.Cut(line, "\t")
			parts = append(parts, part{name, dir})
		}
	}
	var b bytes.Buffer
	b.WriteString("Carillon's programs contain the following software.\n")
	for _, p := range parts {
		names, err := listFiles(p.dir)
		if err != nil {
			return nil, err
		}
		found := false
		for _, name := range names {
			if !licenceNames.MatchString(name) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(p.dir, name))
			if err != nil {
				return nil, err
			}
			found = true
			fmt.Fprintf(&b, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), p.name, name, bytes.TrimSpace(data))
		}
		if !found {
			return nil, fmt.Errorf("%s has no licence file in %s", p.name, p.dir)
		}
	}
	return b.Bytes(), nil
}

func goOutput(dir string, args ...string) (string, error) {
	c := exec.Command("go", args...)
	c.Dir, c.Env = dir, environment("GOFLAGS=-mod=readonly", "GOWORK=off")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
