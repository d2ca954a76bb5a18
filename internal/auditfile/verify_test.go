package auditfile

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// chain makes n audits of a tenant.
func chain(tenant jobs.Tenant, n int) (list []*kernel.Audit) {
	var prev []byte
	for i := range n {
		a := &kernel.Audit{Tenant: tenant, N: uint64(i + 1), At: time.Date(2026, 11, 27, 8, i, 0, 0, time.UTC), Actor: "person:ann", Verb: "edit",
			Target: "job <a> & b", Before: []byte(`{"retries":0}`), After: fmt.Appendf(nil, `{"retries":%d}`, i), Prev: prev}
		a.Hash = a.Sum()
		prev = a.Hash
		list = append(list, a)
	}
	return list
}

// written are the lines of audits.
func written(list ...*kernel.Audit) (lines []string) {
	for _, a := range list {
		lines = append(lines, strings.TrimSuffix(string(Append(nil, a)), "\n"))
	}
	return lines
}

func verify(lines []string, heads ...string) ([]*Chain, error) {
	var v Verifier
	for _, h := range heads {
		if err := v.Want(h); err != nil {
			return nil, err
		}
	}
	text := strings.Join(lines, "\n")
	if text != "" {
		text += "\n"
	}
	if err := v.Read("a", strings.NewReader(text)); err != nil {
		return nil, err
	}
	chains, _, err := v.Done()
	return chains, err
}

func TestLineGolden(t *testing.T) {
	const want = `{"v":1,"tenant":"default","n":1,"at":"2026-11-27T08:00:00Z","actor":"person:ann","verb":"edit","target":"job \u003ca\u003e \u0026 b","before":{"retries":0},"after":{"retries":0},"hash":"30427c2fa6dfb9e79e8aaebc7cd90b2aa98ebe5193e9fbeb1b55a0451e8b8167"}`
	if got := written(chain("default", 1)...)[0]; got != want {
		t.Errorf("the line is\n%s\nwant\n%s", got, want)
	}
}

func TestVerify(t *testing.T) {
	a, b := chain("default", 6), chain("acme", 3)
	la, lb := written(a...), written(b...)
	mixed := []string{la[0], lb[0], la[1], la[2], lb[1], la[1], la[2], la[3], lb[2], la[4], la[5]}
	chains, err := verify(mixed, hex.EncodeToString(a[5].Hash))
	if err != nil || len(chains) != 2 || chains[1].Tenant != "default" || chains[1].Last != 6 || chains[1].Repeats != 2 || chains[0].Last != 3 ||
		chains[1].Hash != hex.EncodeToString(a[5].Hash) {
		t.Errorf("two tenants, and lines that come again: %+v, %v", chains, err)
	}
	if chains, err := verify(la[3:]); err != nil || chains[0].First != 4 {
		t.Errorf("the end of a chain: %+v, %v", chains, err)
	}
}

// Each kind of change is found, and the line is named.
func TestTampering(t *testing.T) {
	a, other := chain("default", 6), chain("default", 6)
	lines := written(a...)
	forged := *a[2]
	forged.Actor = "person:bob"
	forged.Hash = forged.Sum()
	invented := *a[5]
	invented.N, invented.Prev = 7, other[3].Hash
	invented.Hash = invented.Sum()
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"a changed field", slices.Replace(slices.Clone(lines), 2, 3, strings.Replace(lines[2], "ann", "bob", 1)), "a:3: changed"},
		{"a changed hash", slices.Replace(slices.Clone(lines), 2, 3, lines[2][:len(lines[2])-5]+`000"}`), "a:3: changed"},
		{"a changed field with a new hash", slices.Replace(slices.Clone(lines), 2, 3, written(&forged)[0]), "a:4: changed or inserted: audit 4 of tenant default does not continue audit 3 in a:3"},
		{"a field that is repeated", slices.Replace(slices.Clone(lines), 2, 3, strings.Replace(lines[2], `"actor":`, `"actor":"person:bob","actor":`, 1)), "a:3: changed: not as"},
		{"a field that is added", slices.Replace(slices.Clone(lines), 2, 3, strings.Replace(lines[2], `{"v":1,`, `{"v":1,"approved":true,`, 1)), "a:3: changed: not as"},
		{"spaces", slices.Replace(slices.Clone(lines), 2, 3, " "+lines[2]), "a:3: changed: not as"},
		{"another form", slices.Replace(slices.Clone(lines), 2, 3, strings.Replace(lines[2], `"v":1`, `"v":2`, 1)), "a:3: changed: form 2"},
		{"a removed line", slices.Delete(slices.Clone(lines), 2, 3), "a:3: removed: tenant default lacks audit 3 after a:2"},
		{"two removed lines", slices.Delete(slices.Clone(lines), 2, 4), "a:3: removed: tenant default lacks audits 3 to 4"},
		{"swapped lines", []string{lines[0], lines[2], lines[1], lines[3]}, "a:3: reordered: audit 2 of tenant default belongs after a:1 and before a:2"},
		{"the newest first", []string{lines[2], lines[1], lines[0]}, "a:2: reordered"},
		{"a second line of a number", slices.Insert(slices.Clone(lines), 3, written(&forged)[0]), "a:4: inserted: audit 3"},
		{"a line at the end", append(slices.Clone(lines), written(&invented)[0]), "a:7: changed or inserted"},
		{"an empty line", slices.Insert(slices.Clone(lines), 3, ""), "a:4: changed: not a line"},
		{"a text", []string{"hello"}, "a:1: changed: not a line"},
		{"a removed end", lines[:4], "no line has the hash " + hex.EncodeToString(a[5].Hash)},
		{"a first line that continues nothing", []string{strings.Replace(lines[1], `"n":2`, `"n":1`, 1)}, "a:1: changed"},
	} {
		_, err := verify(c.lines, hex.EncodeToString(a[5].Hash))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	var v Verifier
	if err := v.Read("a", strings.NewReader(lines[0]+"\n"+lines[1][:40])); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Done(); err == nil || !strings.HasPrefix(err.Error(), "a:2: the line is cut off") {
		t.Errorf("a line that is cut off: %v", err)
	}
	if err := v.Want("12"); err == nil {
		t.Error("a head of two digits is accepted")
	}
}

// A gap is accepted if a later audit records it, and is an error otherwise.
func TestGaps(t *testing.T) {
	list := chain("default", 12)
	confirm := list[10]
	confirm.Verb, confirm.Target, confirm.Before, confirm.After = "exported", "audit sink siem", nil, []byte(`{"from":4,"to":7}`)
	confirm.Hash = confirm.Sum()
	list[11].Prev = confirm.Hash
	list[11].Hash = list[11].Sum()
	gap := func(from, to uint64) string {
		return strings.TrimSuffix(string(AppendGap(nil, "default", Gap{"siem", from, to})), "\n")
	}
	l := written(list...)
	head := hex.EncodeToString(list[11].Hash)
	with := func(gaps ...string) []string { return slices.Concat(l[:3], gaps, l[7:]) }
	for name, lines := range map[string][]string{
		"once":              with(gap(4, 7)),
		"twice":             with(gap(4, 7), gap(4, 7)),
		"it grew":           with(gap(4, 6), gap(4, 7)),
		"repeated later":    append(with(gap(4, 7)), gap(4, 7), l[11]),
		"a batch was twice": slices.Concat(l[:3], []string{gap(4, 7)}, l[7:9], []string{gap(4, 7)}, l[7:]),
	} {
		chains, err := verify(lines, head)
		if err != nil || len(chains) != 1 || len(chains[0].Gaps) != 1 || chains[0].Gaps[0] != (Gap{"siem", 4, 7}) || chains[0].Last != 12 {
			t.Errorf("%s: %+v, %v", name, chains, err)
		}
	}
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"not confirmed":     {with(gap(4, 7))[:7], "a:4: the gap of audits 4 to 7 of tenant default is confirmed by no later audit"},
		"of another sink":   {slices.Concat(l[:3], []string{strings.Replace(gap(4, 7), "siem", "file", 1)}, l[7:]), "a:4: the gap"},
		"longer":            {slices.Concat(l[:3], []string{gap(4, 8)}, l[8:]), "a:4: the gap of audits 4 to 8"},
		"too late":          {slices.Concat(l[:2], []string{gap(4, 7)}, l[7:]), "a:3: removed: tenant default lacks audit 3 before the gap"},
		"an invented field": {with(strings.Replace(gap(4, 7), `{"v":1,`, `{"v":1,"x":1,`, 1)), "a:4: changed"},
		"no gap":            {with(), "a:4: removed: tenant default lacks audits 4 to 7"},
	} {
		if _, err := verify(c.lines); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	v := Verifier{Syslog: true}
	if err := v.Read("a", strings.NewReader("Nov 27 08:00:00 host carillon[7] "+l[0]+"\n2026 carillon: "+l[1]+"\n")); err != nil {
		t.Fatal(err)
	}
	if chains, _, err := v.Done(); err != nil || chains[0].Last != 2 {
		t.Errorf("lines of a syslog server: %+v, %v", chains, err)
	}
}
