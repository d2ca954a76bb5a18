package jobfile_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
)

// A time without an offset has none in the request either: the server reads it in the zone of the job.
func TestTimesKeepTheirOffset(t *testing.T) {
	for text, want := range map[string]string{"2026-12-01 09:00:00": `"2026-12-01T09:00:00"`, "2026-12-01": `"2026-12-01"`, "2026-12-01T09:00:00": `"2026-12-01T09:00:00"`,
		"2026-12-01T09:00:00Z": `"2026-12-01T09:00:00Z"`, "2026-12-01T09:00:00-05:00": `"2026-12-01T09:00:00-05:00"`} {
		list, err := jobfile.Parse("f", []byte("jobs:\n- {key: a, start: "+text+"}\n"), func(string) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(list[0].Body["start"]); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, want %s (%v)", text, got, want, err)
		}
	}
}

// Files that are applied together are one bundle; one of them names it.
func TestBundle(t *testing.T) {
	for _, c := range []struct {
		files      []string
		want, says string
	}{
		{[]string{"jobs: []\n"}, "", ""},
		{[]string{"bundle: shop\njobs: []\n", "jobs: [{key: a}]\n", "# nothing\n"}, "shop", ""},
		{[]string{"bundle: shop\n", "jobs: []\nbundle: shop\n"}, "shop", ""},
		{[]string{"bundle: shop\n---\nbundle: shop\n"}, "shop", ""},
		{[]string{"bundle: shop\n", "bundle: mail\n"}, "", "f1:1: bundle mail differs from bundle shop in f0:1"},
		{[]string{"bundle: shop\n---\nbundle: mail\n"}, "", "f0:3: bundle mail differs from bundle shop in f0:1"},
		{[]string{"bundle: 7\n"}, "", "f0:1: bundle: is a name"},
		{[]string{"bundle:\n"}, "", "f0:1: bundle: is a name"},
		{[]string{"bundle: ''\n"}, "", "f0:1: bundle"},
		{[]string{"bundle: a b\n"}, "", "f0:1: bundle \"a b\""},
	} {
		var in jobfile.Content
		var err error
		for i, text := range c.files {
			if err = in.Add(fmt.Sprint("f", i), []byte(text), func(string) error { return nil }); err != nil {
				break
			}
		}
		if c.says == "" && (err != nil || in.Bundle != c.want) || c.says != "" && (err == nil || !strings.HasPrefix(err.Error(), c.says)) {
			t.Errorf("%q: %q, %v; want %q %s", c.files, in.Bundle, err, c.want, c.says)
		}
	}
}

// Values are sent as they are written. YAML's own spellings of numbers become those of JSON; a date in arguments is
// text, as JSON has no dates.
func TestValuesAreSentAsWritten(t *testing.T) {
	for text, want := range map[string]string{
		"9007199254740993": "", "123456789012345678901234567890": "", "-9007199254740993.0": "", "0.10": "", "-0": "", "1E5": "", "1e400": "",
		"0x20000000000001": "9007199254740993", "1_000": "1000", "+5": "5", "+9007199254740993.0": "9007199254740993.0", ".50": "0.50", "-.5": "-0.5", "5.": "5", "0b11": "3",
		`"0.10"`: "", "!!str 0.10": `"0.10"`, "'1e400'": `"1e400"`, "1.2.3": `"1.2.3"`,
		"2026-12-01": `"2026-12-01"`, "2026-12-01T09:00:00Z": `"2026-12-01T09:00:00Z"`,
		"~": "null", "": "null", "yes": `"yes"`, "true": "true", "[]": "", "{}": "", "[1, [0.10, null], {x: {}}]": `[1,[0.10,null],{"x":{}}]`,
	} {
		if want == "" {
			want = cmp.Or(text, "null")
		}
		list, err := jobfile.Parse("f", []byte("jobs:\n- key: a\n  v: "+text+"\n  args: {x: "+text+"}\n"), func(string) error { return nil })
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := json.Marshal(list[0].Body["args"]); err != nil || string(got) != `{"x":`+want+`}` {
			t.Errorf("%s in arguments becomes %s, want %s (%v)", text, got, want, err)
		}
		if got, err := json.Marshal(list[0].Body["v"]); err != nil || string(got) != want && !strings.HasPrefix(want, `"2026`) {
			t.Errorf("%s becomes %s, want %s (%v)", text, got, want, err)
		}
	}
	file := "jobs:\n- key: a\n  x: &x {n: 0.10}\n  y: *x\n  z: {<<: *x, m: 1}\n  start: &s 2026-12-01\n  end: *s\n"
	list, err := jobfile.Parse("f", []byte(file), func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(list[0].Body); err != nil || string(got) !=
		`{"end":"2026-12-01","key":"a","start":"2026-12-01","x":{"n":0.10},"y":{"n":0.10},"z":{"m":1,"n":0.10}}` {
		t.Errorf("aliases become %s (%v)", got, err)
	}
	for _, wrong := range []string{"{1: x}", ".inf", "[.nan]", "{a: 1, a: 2}"} {
		_, err := jobfile.Parse("f", []byte("jobs:\n- key: a\n  x: "+wrong+"\n"), func(string) error { return nil })
		if err == nil || !strings.HasPrefix(err.Error(), "f:3: x: ") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	var bomb strings.Builder
	bomb.WriteString("jobs:\n- key: a\n  b0: &b0 [x]\n")
	for i := range 30 {
		fmt.Fprintf(&bomb, "  b%d: &b%d [%s*b%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*b%d, ", i), 9), i)
	}
	if _, err := jobfile.Parse("f", []byte(bomb.String()), func(string) error { return nil }); err == nil || !strings.Contains(err.Error(), "aliasing") {
		t.Errorf("aliases of aliases: %v", err)
	}
}
