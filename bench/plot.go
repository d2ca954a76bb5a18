package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The dashboard's charts (ui/chart) are about time, and are parts of a page that brings their colours and letters.
// These have their own plots, with other x axes.

// curve is a plot of throughput along something that grows.
type curve struct {
	scenario string
	title    string
	along    string // what grows
}

var curves = []curve{
	{"workers", "Jobs a second by worker processes", "worker processes"},
	{"sizes", "Jobs a second by the size of a call", "runs in a call"},
	{"payloads", "Jobs a second by the size of arguments", "bytes of arguments"},
	{"backlog", "Jobs a second by what else waits", "other runs that wait"},
	{"finished", "Jobs a second by what is finished", "finished runs before"},
}

// file is the name of the picture, beside the document.
func (c curve) file() string { return "plot-" + c.scenario + ".svg" }

// point is the jobs a second where what grows is x.
type point struct {
	x int
	y float64
}

// points are those of a curve, from left to right. The line of workers is that of the scenario batch.
func (r results) points(c curve) []point {
	all := map[int][]float64{}
	for _, l := range r {
		if l.System != systems[0].name || l.Failed != "" {
			continue
		}
		if c.scenario == "workers" && l.Scenario == "batch" && l.Part == "curves" {
			all[l.Workers] = append(all[l.Workers], l.Figures["jobs_per_s"])
		}
		if l.Scenario != c.scenario {
			continue
		}
		for name, y := range l.Figures {
			if x, ok := atOf(name); ok {
				all[x] = append(all[x], y)
			}
		}
	}
	var points []point
	for x, rates := range all {
		points = append(points, point{x, median(rates)})
	}
	slices.SortFunc(points, func(a, b point) int { return a.x - b.x })
	return points
}

// curves shows the plots of what was measured, and their numbers.
func (r results) curves(b *strings.Builder) {
	for _, c := range curves {
		points := r.points(c)
		if len(points) < 2 {
			continue
		}
		fmt.Fprintf(b, "\n![%s](%s)\n\n| %s |", c.title, c.file(), c.along)
		for _, p := range points {
			fmt.Fprintf(b, " %s |", number3(float64(p.x)))
		}
		fmt.Fprintf(b, "\n|---|%s\n| jobs/s |", strings.Repeat("---|", len(points)))
		for _, p := range points {
			fmt.Fprintf(b, " %s |", number3(p.y))
		}
		b.WriteString("\n")
	}
}

// The field of a plot within its picture.
const (
	plotWide, plotTall     = 640, 300
	fieldLeft, fieldRight  = 70, 610
	fieldTop, fieldBottom  = 45, 245
	fieldWide, fieldHeight = fieldRight - fieldLeft, fieldBottom - fieldTop
)

// svg draws it: a step to the right for each point, however far apart they are, because they grow tenfold. The colours
// are those of the reader's page, light or dark.
func (c curve) svg(points []point) []byte {
	top := points[0].y
	for _, p := range points {
		top = max(top, p.y)
	}
	top = ceiling(top)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>
text { font: 12px sans-serif; fill: #24292f }
.title { font-weight: bold; font-size: 14px }
.grid { stroke: #24292f; stroke-opacity: .15 }
.line { fill: none; stroke: #0a6ebd; stroke-width: 2 }
.mark { fill: #0a6ebd }
@media (prefers-color-scheme: dark) {
text { fill: #d0d7de }
.grid { stroke: #d0d7de }
.line { stroke: #58a6ff }
.mark { fill: #58a6ff }
}
</style>
<text class="title" x="%d" y="20">%s</text>
`, plotWide, plotTall, c.title, fieldLeft, c.title)
	for i := range 5 {
		y := fieldBottom - i*fieldHeight/4
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%d %dH%d\"/><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", fieldLeft, y, fieldRight, fieldLeft-8, y+4, number3(top*float64(i)/4))
	}
	var path strings.Builder
	var marks bytes.Buffer
	for i, p := range points {
		x, y := fieldLeft+(2*i+1)*fieldWide/(2*len(points)), fieldBottom-p.y/top*fieldHeight
		fmt.Fprintf(&path, "%c%d %.1f", "ML"[min(i, 1)], x, y)
		fmt.Fprintf(&marks, "<circle class=\"mark\" cx=\"%d\" cy=\"%.1f\" r=\"4\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">%s</text><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			x, y, x, y-10, short(p.y), x, fieldBottom+20, short(float64(p.x)))
	}
	fmt.Fprintf(&b, "<path class=\"line\" d=\"%s\"/>\n%s<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n</svg>\n", path.String(), marks.String(), (fieldLeft+fieldRight)/2, plotTall-12, c.along)
	return b.Bytes()
}

// ceiling is the round number at which a scale ends that shows v.
func ceiling(v float64) float64 {
	unit := 1.0
	for unit*10 < v {
		unit *= 10
	}
	for _, step := range []float64{1, 2, 4, 6, 8} {
		if unit*step >= v {
			return unit * step
		}
	}
	return unit * 10
}

// short is a number in few letters: 950, 8.4k, 1M.
func short(n float64) string {
	letters := func(n float64) string {
		if n >= 100 {
			return strconv.FormatFloat(n, 'f', 0, 64)
		}
		return strconv.FormatFloat(n, 'g', 3, 64)
	}
	switch {
	case n >= 1e6:
		return letters(n/1e6) + "M"
	case n >= 1e3:
		return letters(n/1e3) + "k"
	}
	return letters(n)
}
