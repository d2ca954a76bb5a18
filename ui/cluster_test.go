package ui_test

import (
	"strings"
	"testing"
)

// The page of the cluster says who leads, who is away and whose clock is wrong, and believes no node's words.
func TestClusterPage(t *testing.T) {
	s := newScene(t)
	_, page := s.get("/cluster")
	for _, want := range []string{"3 nodes: no fault tolerance.", `<span class="tag good">leader</span>`, "term 7", `<span class="tag bad">offline</span>`,
		`<span class="tag bad">5s</span>`, "this node", `<span class="tag good">triggering</span><span class="sub">149 jobs</span>`} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(page, `href="javascript:`) || strings.Contains(page, hostile) {
		t.Error("a node's words are markup")
	}
}
