package chart

import (
	"fmt"
	"html/template"
	"time"
)

// Heat is a number for each minute: a row an hour, darker for higher numbers.
type Heat struct {
	Title   string
	What    string    // such as "planned"
	From    time.Time // the start of the first minute
	Minutes []int
	Usual   int // twice of that is the second of four shades
}

const (
	heatRow = 10 // height
	heatGap = 2
)

// shade returns how dark a minute is, from 1 to 4.
func (h Heat) shade(n, most int) int {
	switch usual := max(h.Usual, 1); {
	case n <= usual:
		return 1
	case n <= 2*usual || n*4 < most:
		return 2
	case n*2 < most:
		return 3
	}
	return 4
}

// HTML renders the chart. Consecutive minutes with the same number are one mark.
func (h Heat) HTML() template.HTML {
	if len(h.Minutes) == 0 {
		return ""
	}
	var most, sum int
	for _, n := range h.Minutes {
		most, sum = max(most, n), sum+n
	}
	first := h.From.UTC().Truncate(time.Hour)
	before := int(h.From.Sub(first) / time.Minute)
	rows := (before + len(h.Minutes) + 59) / 60
	var p pen
	p.WriteString(`<div class="heat"><div class="hours" aria-hidden="true">`)
	for row := range rows {
		p.clock(first.Add(time.Duration(row) * time.Hour))
	}
	p.f(`</div><svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`, wide, rows*(heatRow+heatGap), fmt.Sprintf("%s: %d in total, at most %d in a minute", h.Title, sum, most))
	const pitch = wide / 60
	for i := 0; i < len(h.Minutes); {
		n, from := h.Minutes[i], i
		for i++; i < len(h.Minutes) && h.Minutes[i] == n && (before+i)%60 != 0; i++ {
		}
		if n == 0 {
			continue
		}
		tip := fmt.Sprintf("%d %s", n, h.What)
		if i-from > 1 {
			tip += fmt.Sprintf(" in each of %d minutes", i-from)
		}
		row, column := (before+from)/60, (before+from)%60
		p.f(`<rect class="h%d" x="%d" y="%d" width="%d" height="%d" data-at="%s" data-tip="%s"/>`, h.shade(n, most),
			column*pitch, row*(heatRow+heatGap), (i-from)*pitch, heatRow, h.From.Add(time.Duration(from)*time.Minute).UTC().Format(iso), tip)
	}
	p.WriteString(`</svg><div class="ticks" aria-hidden="true"><span>:00</span><span>:15</span><span>:30</span><span>:45</span><span>:59</span></div></div>`)
	at, sums, tops := make([]time.Time, rows), make([]int, rows), make([]int, rows)
	for row := range rows {
		at[row] = first.Add(time.Duration(row) * time.Hour)
	}
	for i, n := range h.Minutes {
		row := (before + i) / 60
		sums[row], tops[row] = sums[row]+n, max(tops[row], n)
	}
	p.table(at, []string{h.What, "maximum per minute"}, func(column, row int) string { return fmt.Sprint([][]int{sums, tops}[column][row]) })
	return p.html()
}
