package ui

import (
	"fmt"
	"html/template"
	"net/http"

	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui/chart"
)

// forecastPage is the planned fires of the next day.
type forecastPage struct {
	visitor
	ops.Forecast
	Heat template.HTML
	Sum  int
	Most int
}

func (u *UI) forecast(r *http.Request, v visitor) (answer, error) {
	f, err := u.ops.Forecast(r.Context(), v.Who)
	if err != nil {
		return answer{}, err
	}
	p := forecastPage{visitor: v, Forecast: f}
	for _, n := range f.Fires {
		p.Sum, p.Most = p.Sum+n, max(p.Most, n)
	}
	p.Heat = chart.Heat{Title: "Planned fires by minute", What: "planned", From: f.From, Minutes: f.Fires, Usual: f.Usual}.HTML()
	return answer{page: "forecast", title: "Forecast", data: p}, nil
}

// UsualText describes the median minute.
func (p forecastPage) UsualText() string {
	if p.Going {
		return "so far"
	}
	if p.Usual == 0 {
		return "the median minute has none"
	}
	return fmt.Sprintf("the median minute has %s", count(p.Usual))
}
