package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// graphOf returns a graph of edges such as "a>b".
func graphOf(edges ...string) Graph {
	g := Graph{Title: "Jobs"}
	add := func(id string) {
		if !slices.ContainsFunc(g.Nodes, func(n Node) bool { return n.ID == id }) {
			g.Nodes = append(g.Nodes, Node{ID: id, Name: "job." + id, Text: "Succeeded", Class: "succeeded"})
		}
	}
	for _, e := range edges {
		from, to, follows := strings.Cut(e, ">")
		add(from)
		if follows {
			add(to)
			g.Edges = append(g.Edges, Edge{From: from, To: to, Text: "after success", Kind: EdgeSuccess})
		}
	}
	return g
}

func chain(n int) (edges []string) {
	for i := range n {
		edges = append(edges, fmt.Sprintf("n%d>n%d", i, i+1))
	}
	return edges
}

func fan(n int) (edges []string) {
	for i := range n {
		edges = append(edges, fmt.Sprintf("root>n%d", i), fmt.Sprintf("n%d>end", i))
	}
	return edges
}

// Each node is right of those before it; no two boxes overlap, and no arrow passes a box.
func TestGraphLayout(t *testing.T) {
	for name, test := range map[string]struct {
		edges  []string
		layers string // nodes of each layer, in the order of names
		more   int
	}{
		"one node":          {[]string{"a"}, "a", 0},
		"a chain":           {[]string{"a>b", "b>c"}, "a b c", 0},
		"a diamond":         {[]string{"a>b", "a>c", "b>d", "c>d"}, "a b,c d", 0},
		"a long edge":       {[]string{"a>b", "b>c", "a>c"}, "a b c", 0},
		"edges twice":       {[]string{"a>b", "a>b", "b>b"}, "a b", 0},
		"a cycle":           {[]string{"a>b", "b>c", "c>a"}, "a b c", 0},
		"two parts":         {[]string{"a>b", "c>d"}, "a,c b,d", 0},
		"input is reversed": {[]string{"c>d", "b>c", "a>b"}, "a b c d", 0},
		"many in one layer": {fan(198), "", 0},
		"too many":          {fan(500), "", 302},
		"too long":          {chain(300), "", 101},
		"dense":             {dense(30, 7), "", 0},
	} {
		l := graphOf(test.edges...).place()
		if test.layers != "" {
			var layers []string
			for _, layer := range l.layers {
				var ids []string
				for _, s := range layer {
					if s.node >= 0 {
						ids = append(ids, l.Nodes[s.node].ID)
					}
				}
				slices.Sort(ids)
				layers = append(layers, strings.Join(ids, ","))
			}
			if got := strings.Join(layers, " "); got != test.layers {
				t.Errorf("%s: layers %q, want %q", name, got, test.layers)
			}
		}
		if l.More != test.more || len(l.Nodes) > GraphNodes {
			t.Errorf("%s: %d nodes, %d more, want %d", name, len(l.Nodes), l.More, test.more)
		}
		if name != "a cycle" {
			for i, r := range l.routes {
				for j := 1; j < len(r); j++ {
					if r[j].layer != r[j-1].layer+1 {
						t.Errorf("%s: edge %d goes from layer %d to %d", name, i, r[j-1].layer, r[j].layer)
					}
				}
			}
		}
		var all []*spot
		for _, layer := range l.layers {
			all = append(all, layer...)
		}
		for i, a := range all {
			if a.x < 0 || a.y < 0 || a.x+boxWide > l.wide || a.y+a.tall() > l.tall {
				t.Errorf("%s: spot %+v is outside of %d x %d", name, a, l.wide, l.tall)
			}
			for _, b := range all[:i] {
				if a.x < b.x+boxWide && b.x < a.x+boxWide && a.y < b.y+b.tall() && b.y < a.y+a.tall() {
					t.Errorf("%s: %+v and %+v overlap", name, a, b)
				}
			}
		}
	}
}

// dense connects each node with the next n.
func dense(nodes, n int) (edges []string) {
	for i := range nodes {
		for j := i + 1; j <= min(i+n, nodes-1); j++ {
			edges = append(edges, fmt.Sprintf("n%d>n%d", i, j))
		}
	}
	return edges
}

// A large graph shows what is near the page's own node.
func TestGraphKeepsItsCentre(t *testing.T) {
	g := graphOf(chain(999)...)
	g.Nodes[700].Here, g.More = true, 5
	l := g.place()
	if len(l.Nodes) != GraphNodes || l.More != 1000-GraphNodes+5 || l.Nodes[0].ID != "n600" {
		t.Errorf("%d nodes from %s, %d more", len(l.Nodes), l.Nodes[0].ID, l.More)
	}
	if got := string(g.HTML()); !strings.Contains(got, "805 more not shown") || wellFormed(got) != nil {
		t.Error("the page does not show how many nodes are missing")
	}
}

// Layers are ordered so that arrows do not cross without need.
func TestGraphOrder(t *testing.T) {
	l := graphOf("a", "b", "c", "x", "y", "z", "a>z", "b>y", "c>x").place()
	for i, from := range l.layers[0] {
		if to := l.layers[1][i]; len(from.right) != 1 || from.right[0] != to {
			t.Errorf("row %d: %s does not lead to its neighbour", i, l.Nodes[from.node].ID)
		}
	}
}
