package ui

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// chart is how runs ended, hour by hour: stacked bars, drawn here so that a page needs no script for them.
type chart struct {
	Bars []bar
	Good int64 // ended well, in all hours
	Bad  int64 // ended badly
	Most int64 // in the best hour
}

// bar is one hour. Heights are out of chartHeight, from the bottom.
type bar struct {
	Hour            time.Time
	X               int
	GoodY, GoodTall int
	BadY, BadTall   int
	Good, Bad       int64
}

const (
	chartHours  = 24
	chartHeight = 64
	barPitch    = 12
)

// draw makes the chart of the hours up to now.
func draw(counts []jobs.Tally, now time.Time) chart {
	var c chart
	first := now.Truncate(time.Hour).Add(-(chartHours - 1) * time.Hour)
	c.Bars = make([]bar, chartHours)
	for i := range c.Bars {
		c.Bars[i] = bar{Hour: first.Add(time.Duration(i) * time.Hour), X: i * barPitch}
	}
	for _, t := range counts {
		i := int(time.Unix(0, t.Hour).Sub(first) / time.Hour)
		if i < 0 || i >= chartHours {
			continue
		}
		switch t.State {
		case jobs.Succeeded:
			c.Bars[i].Good += t.N
			c.Good += t.N
		case jobs.Terminated:
			c.Bars[i].Bad += t.N
			c.Bad += t.N
		}
	}
	for _, b := range c.Bars {
		c.Most = max(c.Most, b.Good+b.Bad)
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		b.BadTall = tall(b.Bad, c.Most)
		b.GoodTall = min(tall(b.Good, c.Most), chartHeight-b.BadTall)
		b.GoodY = chartHeight - b.GoodTall
		b.BadY = b.GoodY - b.BadTall
	}
	return c
}

// tall is the height of n where most is the whole height; what is there is seen.
func tall(n, most int64) int {
	if n == 0 || most == 0 {
		return 0
	}
	return max(2, int(n*chartHeight/most))
}
