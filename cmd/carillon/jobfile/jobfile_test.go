package jobfile_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
)

// A time without an offset has none in the request either: the server reads it in the zone of the job.
func TestTimesKeepTheirOffset(t *testing.T) {
	for text, want := range map[string]string{"2026-12-01 09:00:00": `"2026-12-01T09:00:00"`, "2026-12-01": `"2026-12-01T00:00:00"`, "2026-12-01T09:00:00": `"2026-12-01T09:00:00"`,
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
