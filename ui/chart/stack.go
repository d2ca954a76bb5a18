package chart

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// Series is one colour of a stack.
type Series struct {
	Name   string
	Class  string
	Values []int64 // one per column; not negative
}

// Stack is stacked bars over time.
type Stack struct {
	Title  string
	Days   bool        // each column is a day of UTC
	At     []time.Time // the start of each column, oldest first
	Series []Series    // from the bottom up
}

// Sum returns the sum of a series.
func (s Series) Sum() int64 {
	var n int64
	for _, v := range s.Values {
		n += v
	}
	return n
}

// HTML renders the chart.
func (s Stack) HTML() template.HTML {
	if len(s.At) == 0 {
		return ""
	}
	var most int64
	for i := range s.At {
		most = max(most, s.total(i))
	}
	top := nice(float64(most), 4)
	p := pen{days: s.Days}
	p.axes(s.Title, s.desc(), short(top), short(top/2))
	pitch := float64(wide) / float64(len(s.At))
	for i, at := range s.At {
		x, width := float64(i)*pitch, pitch*.8
		if s.Days {
			p.f(`<g data-tip="%s">`, at.UTC().Format("Mon 2 Jan")+"\n"+s.tip(i))
		} else {
			p.f(`<g data-at="%s" data-tip="%s">`, at.UTC().Format(iso), s.tip(i))
		}
		p.f(`<rect class="zone" x="%.2f" y="0" width="%.2f" height="%d"/>`, x, pitch, tall)
		y := float64(tall)
		for _, one := range s.Series {
			if v := one.Values[i]; v > 0 {
				high := max(float64(v)/top*tall, 1.5) // at least visible
				y -= high
				p.f(`<rect class="mark %s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, one.Class, x+pitch*.1, y, width, high)
			}
		}
		p.WriteString(`</g>`)
	}
	p.times(s.At)
	var heads []string
	var items [][2]string
	for _, one := range s.Series {
		heads = append(heads, one.Name)
		items = append(items, [2]string{one.Class, one.Name})
	}
	p.legend(items...)
	p.table(s.At, heads, func(column, row int) string { return fmt.Sprint(s.Series[column].Values[row]) })
	return p.html()
}

func (s Stack) total(i int) int64 {
	var n int64
	for _, one := range s.Series {
		n += one.Values[i]
	}
	return n
}

func (s Stack) tip(i int) string {
	var parts []string
	for _, one := range s.Series {
		if one.Values[i] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", one.Values[i], one.Name))
		}
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, "\n")
}

func (s Stack) desc() string {
	parts := make([]string, len(s.Series))
	for i, one := range s.Series {
		parts[i] = fmt.Sprintf("%d %s", one.Sum(), one.Name)
	}
	return strings.Join(parts, ", ")
}
