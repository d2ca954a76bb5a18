package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
)

// Tags of an rpm's header.
const (
	rpmName, rpmVersion, rpmRelease              = 1000, 1001, 1002
	rpmBuildTime, rpmBuildHost                   = 1006, 1007
	rpmLicense, rpmArch                          = 1014, 1022
	rpmModes, rpmFlags, rpmUsers, rpmGroups      = 1030, 1037, 1039, 1040
	rpmRequires, rpmDirIndexes, rpmBase, rpmDirs = 1049, 1116, 1117, 1118
)

// rpmHeader is the header of an rpm: strings and numbers by tag.
type rpmHeader struct {
	text    map[int][]string
	numbers map[int][]int
}

// readRPM reads the header and the files of an rpm.
func readRPM(t *testing.T, raw []byte) (rpmHeader, map[string][]byte) {
	t.Helper()
	const lead = 96
	if len(raw) < lead || !bytes.HasPrefix(raw, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Fatal("not an rpm")
	}
	_, n := readHeader(t, raw[lead:]) // checksums of the rest
	start := lead + (n+7)/8*8
	head, n := readHeader(t, raw[start:])
	z, err := gzip.NewReader(bytes.NewReader(raw[start+n:]))
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string][]byte{}
	for r := cpio.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return head, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		if contents[clean(h.Name)], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// readHeader reads one header section and returns its size.
func readHeader(t *testing.T, raw []byte) (rpmHeader, int) {
	t.Helper()
	if !bytes.HasPrefix(raw, []byte{0x8e, 0xad, 0xe8, 1}) {
		t.Fatal("not a header of an rpm")
	}
	number := func(at int) int { return int(binary.BigEndian.Uint32(raw[at:])) }
	count, size := number(8), number(12)
	store := raw[16+16*count:]
	h := rpmHeader{map[int][]string{}, map[int][]int{}}
	for i := range count {
		at := 16 + 16*i
		tag, kind, offset, n := number(at), number(at+4), number(at+8), number(at+12)
		for j := range n {
			switch kind {
			case 3: // numbers of 16 bits
				h.numbers[tag] = append(h.numbers[tag], int(binary.BigEndian.Uint16(store[offset+2*j:])))
			case 4: // of 32 bits
				h.numbers[tag] = append(h.numbers[tag], int(binary.BigEndian.Uint32(store[offset+4*j:])))
			case 6, 8, 9: // strings
				end := offset + bytes.IndexByte(store[offset:], 0)
				h.text[tag] = append(h.text[tag], string(store[offset:end]))
				offset = end + 1
			}
		}
	}
	return h, 16 + 16*count + size
}

func checkRPM(t *testing.T, file, arch string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, contents := readRPM(t, raw)
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	for tag, want := range map[int]string{
		rpmName: "carillon", rpmVersion: "0.1.0", rpmRelease: "1", rpmArch: machine, rpmLicense: "Apache-2.0",
		rpmBuildHost: "localhost",
	} {
		if got := head.text[tag]; !slices.Equal(got, []string{want}) {
			t.Errorf("tag %d is %q, want %q", tag, got, want)
		}
	}
	if got := head.numbers[rpmBuildTime]; !slices.Equal(got, []int{int(toyDay.Unix())}) {
		t.Errorf("it was built at %d", got)
	}
	if needs := head.text[rpmRequires]; !slices.Contains(needs, "/usr/sbin/useradd") {
		t.Errorf("it requires %q", needs)
	}
	found := map[string]bool{}
	for i, base := range head.text[rpmBase] {
		name := clean(head.text[rpmDirs][head.numbers[rpmDirIndexes][i]] + base)
		want, ok := installed[name]
		if !ok {
			t.Errorf("%s is not expected", name)
		}
		found[name] = true
		got := ownership(fs.FileMode(head.numbers[rpmModes][i]), head.text[rpmUsers][i], head.text[rpmGroups][i])
		if got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
		const noReplace = 1<<0 | 1<<4 // a configuration file that upgrades keep
		if kept := head.numbers[rpmFlags][i]&noReplace == noReplace; kept != (name == "etc/carillon/carillon.yaml") {
			t.Errorf("upgrades keep %s: %v", name, kept)
		}
	}
	for name := range installed {
		inDeb := name == "usr/share/doc/carillon/copyright" || name == "usr/share/doc/carillon/"+licencesFile
		if !found[name] && !inDeb {
			t.Errorf("%s is missing", name)
		}
	}
	for _, script := range []struct {
		tag  int
		file string
	}{{1023, "preinstall"}, {1024, "postinstall"}, {1025, "preremove"}, {1026, "postremove"}} {
		want, err := os.ReadFile("files/" + script.file + ".sh")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(head.text[script.tag], ""); strings.TrimSpace(got) != strings.TrimSpace(string(want)) {
			t.Errorf("%s is\n%s", script.file, got)
		}
	}
	checkProgram(t, contents["usr/bin/carillon"], system{"linux", arch})
}
