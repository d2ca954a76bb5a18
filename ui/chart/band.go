package chart

import (
	"fmt"
	"html/template"
	"time"
)

// Band is the median and a high percentile over time.
type Band struct {
	Title     string
	At        []time.Time // the start of each column, oldest first
	Low, High []time.Duration
	LowName   string
	HighName  string
	Known     []bool // columns with a measurement
}

// HTML renders the chart.
func (b Band) HTML() template.HTML {
	if len(b.At) == 0 {
		return ""
	}
	var most, last time.Duration
	for i := range b.At {
		if b.Known[i] {
			most, last = max(most, b.High[i]), b.High[i]
		}
	}
	top := time.Duration(nice(float64(most), float64(time.Millisecond)))
	var p pen
	p.axes(b.Title, fmt.Sprintf("%s at most %s, lately %s", b.HighName, length(most), length(last)), length(top), length(top/2))
	pitch := float64(wide) / float64(len(b.At))
	point := func(i int, d time.Duration) (x, y float64) {
		return (float64(i) + .5) * pitch, tall - float64(d)/float64(top)*tall
	}
	// Ranges with measurements become an area and two lines each; a single column becomes a short one.
	for from := 0; from < len(b.At); from++ {
		if !b.Known[from] {
			continue
		}
		to := from
		for to+1 < len(b.At) && b.Known[to+1] {
			to++
		}
		line := func(values []time.Duration) (path string) {
			for i := from; i <= to; i++ {
				x, y := point(i, values[i])
				switch {
				case from == to:
					return fmt.Sprintf("M%.2f %.2fH%.2f", x-pitch*.4, y, x+pitch*.4)
				case i == from:
					path = fmt.Sprintf("M%.2f %.2f", x, y)
				default:
					path += fmt.Sprintf("L%.2f %.2f", x, y)
				}
			}
			return path
		}
		if from < to {
			area := line(b.High)
			for i := to; i >= from; i-- {
				x, y := point(i, b.Low[i])
				area += fmt.Sprintf("L%.2f %.2f", x, y)
			}
			p.f(`<path class="area busy" d="%sZ"/>`, area)
		}
		p.f(`<path class="line wait" d="%s"/><path class="line busy" d="%s"/>`, line(b.High), line(b.Low))
		from = to
	}
	for i, at := range b.At {
		tip := "no starts"
		if b.Known[i] {
			tip = fmt.Sprintf("%s %s\n%s %s", length(b.Low[i]), b.LowName, length(b.High[i]), b.HighName)
		}
		p.f(`<g data-at="%s" data-tip="%s"><rect class="zone" x="%.2f" y="0" width="%.2f" height="%d"/></g>`, at.UTC().Format(iso), tip, float64(i)*pitch, pitch, tall)
	}
	p.times(b.At)
	p.legend([2]string{"busy", b.LowName}, [2]string{"wait", b.HighName})
	p.table(b.At, []string{b.LowName, b.HighName}, func(column, row int) string {
		if !b.Known[row] {
			return "–"
		}
		return length([][]time.Duration{b.Low, b.High}[column][row])
	})
	return p.html()
}
