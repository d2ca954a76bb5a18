// Package chart renders numbers as SVG, with a table of the same numbers.
//
// It is not promised to programs outside this module.
//
// Where to start: [Stack], [Band], [Share], [Spark], [Heat], [Graph].
//
// Everything is a pure function of its data. Colours are classes (the state's name, or good, bad, warn, busy, wait,
// calm), so that light and dark need no other drawing. The page stretches plots; their texts are HTML, so that they
// keep their size. A mark with a tip has data-tip, and data-at for its time; static/tip.js shows both beside the
// pointer.
package chart

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// pen writes markup. It escapes texts and shortens numbers.
type pen struct {
	strings.Builder
	days bool // columns are days
}

func (p *pen) f(format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = template.HTMLEscapeString(text)
		}
	}
	fmt.Fprintf(p, format, args...)
}

func (p *pen) html() template.HTML { return template.HTML(p.String()) } //nolint:gosec // all that is not ours was escaped by f

// The size of plots; the page stretches them.
const (
	wide = 600
	tall = 120
)

// nice returns the round end of a scale for v: it goes up from least by 2, 2.5 and 2 again.
func nice(v, least float64) float64 {
	top := least
	for step := 0; top < v; step++ {
		if step%3 == 1 {
			top *= 2.5
		} else {
			top *= 2
		}
	}
	return top
}

// short formats a number for an axis: 950, 1.2k, 3M.
func short(n float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= unit.of {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", n/unit.of), ".0") + unit.name
		}
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0")
}

// length formats a duration for an axis.
func length(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return short(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return short(float64(d)/float64(time.Millisecond)) + " ms"
	case d < time.Minute:
		return short(d.Seconds()) + " s"
	case d < time.Hour:
		return short(d.Minutes()) + " min"
	}
	return short(d.Hours()) + " h"
}

const iso = "2006-01-02T15:04:05Z"

// clock writes a time of day for an axis, which time.js converts to the reader's zone, or a day.
func (p *pen) clock(t time.Time) {
	t = t.UTC()
	if p.days {
		p.f(`<time datetime="%s">%s</time>`, t.Format(time.DateOnly), t.Format("Mon 2 Jan"))
		return
	}
	p.f(`<time datetime="%s" data-minute>%s</time>`, t.Format(iso), t.Format("15:04"))
}

// axes opens a plot: its scale on the left, its lines, and its field.
func (p *pen) axes(title, desc string, top string, half string) {
	p.f(`<div class="plot"><div class="scale" aria-hidden="true"><span>%s</span><span>%s</span><span>0</span></div>`, top, half)
	p.f(`<svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`, wide, tall, title+": "+desc)
	for i := range 3 {
		p.f(`<path class="grid" d="M0 %dH%d"/>`, i*tall/2, wide)
	}
}

// times closes a plot with the times of the first, middle and last column.
func (p *pen) times(at []time.Time) {
	p.WriteString(`</svg><div class="times" aria-hidden="true">`)
	for _, i := range []int{0, len(at) / 2, len(at) - 1} {
		p.clock(at[i])
	}
	p.WriteString(`</div></div>`)
}

// table writes the chart's numbers as a table, newest first.
func (p *pen) table(at []time.Time, heads []string, cell func(column, row int) string) {
	p.WriteString(`<details class="asTable"><summary>View as table</summary><div tabindex="0"><table><thead><tr><th scope="col">Time</th>`)
	for _, h := range heads {
		p.f(`<th scope="col">%s</th>`, h)
	}
	p.WriteString(`</tr></thead><tbody>`)
	for i := len(at) - 1; i >= 0; i-- {
		p.WriteString(`<tr><th scope="row">`)
		p.clock(at[i])
		p.WriteString(`</th>`)
		for j := range heads {
			p.f(`<td>%s</td>`, cell(j, i))
		}
		p.WriteString(`</tr>`)
	}
	p.WriteString(`</tbody></table></div></details>`)
}

func (p *pen) legend(items ...[2]string) {
	p.WriteString(`<ul class="legend">`)
	for _, it := range items {
		p.f(`<li><i class="%s"></i>%s</li>`, it[0], it[1])
	}
	p.WriteString(`</ul>`)
}
