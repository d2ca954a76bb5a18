//go:build linux

package processtest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var row = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| `)

// Each situation is on the page, in the table of running nodes and in that of starting ones, for each store; and the
// page has no others.
func TestThePageHasEachSituation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/when-the-store-is-away.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(page), "\n## A node that runs\n")
	running, starting, ok := strings.Cut(tables, "\n## A node that starts\n")
	if !ok {
		t.Fatal("the page lacks a heading of a table")
	}
	for _, part := range []struct {
		name, text string
		of         func(situation) outcome
	}{
		{"running", running, func(k situation) outcome { return k.running }},
		{"starting", starting, func(k situation) outcome { return k.starting }},
	} {
		var want, is []string
		for _, k := range situations {
			for _, store := range k.stores {
				if part.of(k) != 0 {
					want = append(want, k.name+", "+store)
				}
			}
		}
		for _, m := range row.FindAllStringSubmatch(part.text, -1) {
			if m[1] != "situation" {
				is = append(is, m[1]+", "+m[2])
			}
		}
		slices.Sort(want)
		slices.Sort(is)
		if !slices.Equal(is, want) {
			t.Errorf("of %s nodes the page has\n%s\nwant\n%s", part.name, strings.Join(is, "\n"), strings.Join(want, "\n"))
		}
	}
}
