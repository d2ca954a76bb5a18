package chart

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
)

// Graph is nodes and the arrows between them, from left to right.
type Graph struct {
	Title string
	Nodes []Node // the first with Here is the centre: what is far from it is left out
	Edges []Edge
	More  int  // nodes that the caller left out
	Cut   bool // the caller left out others, and does not know how many
}

// Node is a box of a graph.
type Node struct {
	ID    string // of the edges
	Name  string
	Text  string // its state, or its kind
	Class string // of the state; "" = calm
	Href  string // "" = no link
	Here  bool   // it is what the page shows
}

// Edge is an arrow of a graph.
type Edge struct {
	From, To string
	Text     string // such as "after success"
	Kind     EdgeKind
	Done     bool // the condition is met
}

// EdgeKind is how an arrow is drawn.
type EdgeKind string

// The kinds of arrows. Their values are classes.
const (
	EdgeSuccess EdgeKind = "on-success"
	EdgeFailure EdgeKind = "on-failure"
	EdgeEnd     EdgeKind = "on-end"
	EdgeChild   EdgeKind = "child"
)

var edgeTexts = []struct {
	kind EdgeKind
	text string
}{{EdgeSuccess, "after success"}, {EdgeFailure, "after failure"}, {EdgeEnd, "after any end"}, {EdgeChild, "started by the run"}}

const (
	// GraphNodes is the most nodes of a drawing.
	GraphNodes = 200
	graphEdges = 1000 // the most edges
	graphBends = 2000 // the most bends around boxes; other arrows are straight
	boxWide    = 216
	boxTall    = 46
	boxApart   = 14 // between boxes above each other
	layerApart = 56 // between layers
	bendTall   = 4  // the height that an arrow takes in a layer it passes
	graphEdge  = 8  // around the drawing
	nameLength = 26 // characters that fit into a box
	graphSweep = 6  // passes that order the layers
)

// spot is the place of a node, or of an arrow in a layer that it passes.
type spot struct {
	node  int // -1 = an arrow passes
	layer int
	x, y  int // of its upper left corner
	left  []*spot
	right []*spot
	rank  float64
}

func (s *spot) tall() int {
	if s.node < 0 {
		return bendTall
	}
	return boxTall
}

func (s *spot) middle() int { return s.y + s.tall()/2 }

// layout is where a graph's parts are.
type layout struct {
	Graph
	spots      []*spot // of the nodes
	layers     [][]*spot
	routes     [][]*spot // of the edges, from the first to the last spot
	wide, tall int
}

// bounded returns the graph with the nodes that are nearest to its centre, without edges of unknown nodes, loops and
// repeated edges.
func (g Graph) bounded() Graph {
	at := map[string]int{}
	for i, n := range g.Nodes {
		if _, known := at[n.ID]; !known {
			at[n.ID] = i
		}
	}
	near := make([][]int, len(g.Nodes))
	type pair struct{ from, to string }
	seen := map[pair]bool{}
	edges := slices.DeleteFunc(slices.Clone(g.Edges), func(e Edge) bool {
		a, from := at[e.From]
		b, to := at[e.To]
		if !from || !to || a == b || seen[pair{e.From, e.To}] {
			return true
		}
		seen[pair{e.From, e.To}] = true
		near[a], near[b] = append(near[a], b), append(near[b], a)
		return false
	})
	order := []int{}
	kept := make([]bool, len(g.Nodes))
	add := func(i int) {
		if at[g.Nodes[i].ID] == i && !kept[i] && len(order) < GraphNodes {
			kept[i] = true
			order = append(order, i)
		}
	}
	if here := slices.IndexFunc(g.Nodes, func(n Node) bool { return n.Here }); here >= 0 {
		add(at[g.Nodes[here].ID])
	}
	for done := 0; ; done++ {
		for next := 0; done == len(order) && next < len(g.Nodes); next++ { // parts without a path to the centre
			add(next)
		}
		if done == len(order) {
			break
		}
		for _, i := range near[order[done]] {
			add(i)
		}
	}
	small := Graph{Title: g.Title, Cut: g.Cut, More: g.More + len(at) - len(order)}
	for i, n := range g.Nodes {
		if kept[i] {
			small.Nodes = append(small.Nodes, n)
		}
	}
	for _, e := range edges {
		if kept[at[e.From]] && kept[at[e.To]] && len(small.Edges) < graphEdges {
			small.Edges = append(small.Edges, e)
		}
	}
	return small
}

// place computes the layout: the layer of a node is one more than that of the last node before it; layers are ordered
// so that few arrows cross.
func (g Graph) place() *layout {
	l := &layout{Graph: g.bounded()}
	at := map[string]int{}
	for i, n := range l.Nodes {
		at[n.ID] = i
		l.spots = append(l.spots, &spot{node: i})
	}
	out := make([][]int, len(l.Nodes))
	for _, e := range l.Edges {
		out[at[e.From]] = append(out[at[e.From]], at[e.To])
	}
	l.rank(out)
	bends := 0
	for _, e := range l.Edges {
		from, to := l.spots[at[e.From]], l.spots[at[e.To]]
		route := []*spot{from}
		if n := to.layer - from.layer - 1; n > 0 && bends+n <= graphBends {
			bends += n
			for layer := from.layer + 1; layer < to.layer; layer++ {
				route = append(route, &spot{node: -1, layer: layer})
			}
		}
		route = append(route, to)
		for i := 1; i < len(route); i++ {
			if a, b := route[i-1], route[i]; a.layer < b.layer {
				a.right, b.left = append(a.right, b), append(b.left, a)
			}
			if route[i].node < 0 {
				l.add(route[i])
			}
		}
		l.routes = append(l.routes, route)
	}
	for range graphSweep {
		for i := 1; i < len(l.layers); i++ {
			order(l.layers[i], func(s *spot) []*spot { return s.left })
		}
		for i := len(l.layers) - 2; i >= 0; i-- {
			order(l.layers[i], func(s *spot) []*spot { return s.right })
		}
	}
	l.measure()
	return l
}

// rank puts nodes into layers. Edges that close a cycle do not count.
func (l *layout) rank(out [][]int) {
	const open, done = 1, 2
	state, sorted := make([]int, len(out)), []int{}
	back := map[[2]int]bool{}
	var visit func(i int)
	visit = func(i int) {
		state[i] = open
		for _, j := range out[i] {
			switch state[j] {
			case open:
				back[[2]int{i, j}] = true
			case 0:
				visit(j)
			}
		}
		state[i] = done
		sorted = append(sorted, i)
	}
	for i := range out {
		if state[i] == 0 {
			visit(i)
		}
	}
	for _, i := range slices.Backward(sorted) {
		for _, j := range out[i] {
			if !back[[2]int{i, j}] {
				l.spots[j].layer = max(l.spots[j].layer, l.spots[i].layer+1)
			}
		}
	}
	for _, s := range l.spots {
		l.add(s)
	}
}

func (l *layout) add(s *spot) {
	for len(l.layers) <= s.layer {
		l.layers = append(l.layers, nil)
	}
	l.layers[s.layer] = append(l.layers[s.layer], s)
	s.rank = float64(len(l.layers[s.layer]))
}

// order sorts a layer by the mean position of each spot's neighbours.
func order(layer []*spot, neighbours func(*spot) []*spot) {
	means := make(map[*spot]float64, len(layer))
	for _, s := range layer {
		near := neighbours(s)
		sum := 0.0
		for _, n := range near {
			sum += n.rank
		}
		if means[s] = s.rank; len(near) > 0 {
			means[s] = sum / float64(len(near))
		}
	}
	slices.SortStableFunc(layer, func(a, b *spot) int { return cmp.Compare(means[a], means[b]) })
	for i, s := range layer {
		s.rank = (float64(i) + .5) / float64(len(layer)) // comparable between layers of different sizes
	}
}

// measure stacks each layer, centred.
func (l *layout) measure() {
	heights := make([]int, len(l.layers))
	for i, layer := range l.layers {
		for _, s := range layer {
			heights[i] += s.tall() + boxApart
		}
		heights[i] -= boxApart
		l.tall = max(l.tall, heights[i]+2*graphEdge)
	}
	for i, layer := range l.layers {
		y := (l.tall - heights[i]) / 2
		for _, s := range layer {
			s.x, s.y = graphEdge+i*(boxWide+layerApart), y
			y += s.tall() + boxApart
		}
	}
	l.wide = 2*graphEdge + len(l.layers)*(boxWide+layerApart) - layerApart
}

// HTML renders the graph in a box that scrolls, and as a list.
func (g Graph) HTML() template.HTML {
	if len(g.Nodes) == 0 {
		return ""
	}
	l := g.place()
	var p pen
	p.f(`<div class="graph" tabindex="0" role="region" aria-label="%s"><svg viewBox="0 0 %d %d" width="%d" height="%d" role="group" aria-label="%s">`,
		g.Title, l.wide, l.tall, l.wide, l.tall, fmt.Sprintf("%s: %d nodes, %d arrows", g.Title, len(l.Nodes), len(l.Edges)))
	for i, e := range l.Edges {
		p.arrow(e, l.routes[i])
	}
	for i, n := range l.Nodes {
		p.box(n, l.spots[i])
	}
	p.WriteString(`</svg></div>`)
	switch {
	case l.Cut:
		p.f(`<p class="hint">At least %d more not shown.</p>`, l.More+1)
	case l.More > 0:
		p.f(`<p class="hint">%d more not shown.</p>`, l.More)
	}
	p.keys(l.Edges)
	p.list(l)
	return p.html()
}

// box draws a node.
func (p *pen) box(n Node, s *spot) {
	here, class := "", n.Class
	if n.Here {
		here = " here"
	}
	if class == "" {
		class = "calm"
	}
	if n.Href != "" {
		p.f(`<a href="%s"`, n.Href) // its name is its text
		if brief(n.Name) != n.Name {
			p.f(` aria-description="%s"`, n.Name)
		}
		p.WriteString(`>`)
	}
	p.f(`<g class="node %s%s" data-tip="%s"><rect x="%d" y="%d" width="%d" height="%d" rx="7"/>`, class, here, n.Name+"\n"+n.Text, s.x, s.y, boxWide, boxTall)
	p.f(`<rect class="tone" x="%d" y="%d" width="4" height="%d" rx="2"/>`, s.x, s.y, boxTall)
	p.f(`<text x="%d" y="%d">%s</text> <text class="state" x="%d" y="%d">%s</text></g>`, s.x+14, s.y+20, brief(n.Name), s.x+14, s.y+37, brief(n.Text))
	if n.Href != "" {
		p.WriteString(`</a>`)
	}
}

// arrow draws an edge through its route.
func (p *pen) arrow(e Edge, route []*spot) {
	done := ""
	if e.Done {
		done = " good"
	}
	p.f(`<g class="arrow %s%s" data-tip="%s"><path d="`, string(e.Kind), done, e.Text)
	last := route[len(route)-1]
	for i, s := range route[:len(route)-1] {
		x, y, next := s.x+boxWide, s.middle(), route[i+1]
		if i == 0 {
			p.f(`M%d %d`, x, y)
		} else {
			p.f(`H%d`, x)
		}
		end := next.x
		if next == last {
			end -= 6
		}
		half := (next.x - x) / 2
		if half < layerApart/2 { // it leads back
			half = layerApart
		}
		p.f(`C%d %d %d %d %d %d`, x+half, y, next.x-half, next.middle(), end, next.middle())
	}
	p.f(`"/><path class="head" d="M%d %dl-7 -4v8z"/></g>`, last.x, last.middle())
}

// keys writes the legend of the kinds of arrows, where there are several.
func (p *pen) keys(edges []Edge) {
	var kinds [][2]string
	for _, k := range edgeTexts {
		if slices.ContainsFunc(edges, func(e Edge) bool { return e.Kind == k.kind }) {
			kinds = append(kinds, [2]string{string(k.kind), k.text})
		}
	}
	if len(kinds) < 2 {
		return
	}
	p.WriteString(`<ul class="legend arrows">`)
	for _, k := range kinds {
		p.f(`<li><svg width="28" height="8" aria-hidden="true"><g class="arrow %s"><path d="M0 4H28"/></g></svg>%s</li>`, k[0], k[1])
	}
	p.WriteString(`</ul>`)
}

// list writes the graph as text: each node, with the nodes that follow it.
func (p *pen) list(l *layout) {
	names := map[string]Node{}
	for _, n := range l.Nodes {
		names[n.ID] = n
	}
	p.WriteString(`<details class="asTable"><summary>View as list</summary><div tabindex="0"><ul class="graph-list">`)
	for _, layer := range l.layers {
		for _, s := range layer {
			if s.node < 0 {
				continue
			}
			n := l.Nodes[s.node]
			p.WriteString(`<li>`)
			p.named(n)
			if n.Here {
				p.WriteString(` (this page)`)
			}
			lead := `; then `
			for _, e := range l.Edges {
				if e.From == n.ID {
					p.f(`%s%s: `, lead, e.Text)
					p.named(names[e.To])
					if e.Done {
						p.WriteString(` (condition met)`)
					}
					lead = `, `
				}
			}
			p.WriteString(`</li>`)
		}
	}
	p.WriteString(`</ul></div></details>`)
}

func (p *pen) named(n Node) {
	if n.Href != "" {
		p.f(`<a href="%s">%s</a>`, n.Href, n.Name)
	} else {
		p.f(`%s`, n.Name)
	}
	if n.Text != "" {
		p.f(`, %s`, n.Text)
	}
}

// brief shortens a name in the middle: both its ends matter.
func brief(name string) string {
	runes := []rune(name)
	if len(runes) <= nameLength {
		return name
	}
	return string(runes[:nameLength/2-1]) + "…" + string(runes[len(runes)-nameLength/2:])
}
