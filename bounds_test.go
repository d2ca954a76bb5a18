package carillon_test

import (
	"regexp"
	"strings"
	"testing"
)

// Each refusal of Exhausted names its bound, so that it is counted, logged and shown by it; and the list of bounds in the
// documents is whole.
func TestRefusalsNameTheirBound(t *testing.T) {
	for _, file := range files(t, ".go") {
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(read(t, file), "Refuse(jobs.Exhausted") {
			t.Errorf("%s refuses with jobs.Exhausted and names no bound: use kernel.Exhausted", file)
		}
	}
	page := read(t, "docs/metrics.md")
	_, section, _ := strings.Cut(page, "### Limits\n")
	section, _, _ = strings.Cut(section, "\n## ")
	bounds := regexp.MustCompile(`Bound += "([a-z-]+)"`).FindAllStringSubmatch(read(t, "internal/kernel/bound.go"), -1)
	for _, m := range bounds {
		if !strings.Contains(section, "`"+m[1]+"`") {
			t.Errorf("docs/metrics.md does not list the limit %s", m[1])
		}
	}
	if named := strings.Count(section, "`") / 2; named != len(bounds)+2 || len(bounds) < 20 { // and the metric with its label
		t.Errorf("docs/metrics.md names %d limits, there are %d", named-2, len(bounds))
	}
}
