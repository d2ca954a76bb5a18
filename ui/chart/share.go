package chart

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
)

// Part is one colour of a share.
type Part struct {
	Name  string
	Class string
	N     int
	Href  string // link of the part; "" = none
}

// Share is one divided bar: how many of all are in which state.
type Share struct {
	Title string
	Parts []Part
}

// HTML renders the chart.
func (s Share) HTML() template.HTML {
	all := 0
	said := make([]string, len(s.Parts))
	for i, part := range s.Parts {
		all += part.N
		said[i] = fmt.Sprintf("%d %s", part.N, part.Name)
	}
	var p pen
	p.f(`<svg class="share" viewBox="0 0 %d 10" preserveAspectRatio="none" role="img" aria-label="%s"><rect class="slot" width="%d" height="10"/>`, wide, s.Title+": "+strings.Join(said, ", "), wide)
	// Each part has a minimum width, so that it is visible; the rest is divided.
	const least = 6
	room, some := float64(wide), 0
	for _, part := range s.Parts {
		if part.N > 0 {
			some++
		}
	}
	room -= float64(some * least)
	x := 0.0
	for i, part := range s.Parts {
		if part.N == 0 {
			continue
		}
		width := least + room*float64(part.N)/float64(all)
		p.f(`<rect class="mark %s" x="%.2f" y="0" width="%.2f" height="10" data-tip="%s"/>`, part.Class, x, width, said[i])
		x += width
	}
	p.WriteString(`</svg><ul class="legend">`)
	for _, part := range s.Parts {
		p.f(`<li><i class="%s"></i>`, part.Class)
		if part.Href != "" {
			p.f(`<a href="%s">%s</a>`, part.Href, part.Name)
		} else {
			p.f("%s", part.Name)
		}
		p.f(` <b>%d</b></li>`, part.N)
	}
	p.WriteString(`</ul>`)
	return p.html()
}

// Run is one bar of a spark.
type Run struct {
	Class string
	Took  time.Duration
	Words string    // its state and duration
	At    time.Time // when
	Href  string    // "" = no link
}

// SparkRuns is the max number of runs of a spark.
const SparkRuns = 20

// Spark renders a job's last runs, oldest first: a bar each, with the duration as height, coloured by the final state.
func Spark(title string, runs []Run) template.HTML {
	runs = runs[max(0, len(runs)-SparkRuns):]
	const pitch, high = 6, 24
	var longest time.Duration
	for _, r := range runs {
		longest = max(longest, r.Took)
	}
	role := "img"
	if slices.ContainsFunc(runs, func(r Run) bool { return r.Href != "" }) {
		role = "group" // an image has no links
	}
	var p pen
	p.f(`<svg class="spark" viewBox="0 0 %d %d" width="%d" height="%d" role="%s" aria-label="%s">`, SparkRuns*pitch, high, SparkRuns*pitch, high, role, title)
	for i := range SparkRuns - len(runs) {
		p.f(`<rect class="slot" x="%d" y="%d" width="4" height="3" rx="1"/>`, i*pitch, high-3)
	}
	for i, r := range runs {
		tall := 5.0
		if longest > 0 {
			tall += float64(high-5) * float64(r.Took) / float64(longest)
		}
		if r.Href != "" {
			p.f(`<a href="%s" aria-label="%s">`, r.Href, r.Words)
		}
		p.f(`<rect class="%s" x="%d" y="%.1f" width="4" height="%.1f" rx="1" data-at="%s" data-tip="%s"/>`,
			r.Class, (SparkRuns-len(runs)+i)*pitch, high-tall, tall, r.At.UTC().Format(iso), r.Words)
		if r.Href != "" {
			p.WriteString(`</a>`)
		}
	}
	p.WriteString(`</svg>`)
	return p.html()
}
