package ui

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// dayPage is what ran and what is planned in each hour of a day.
type dayPage struct {
	visitor
	ops.Day
	Date           string
	Zone           string // as it was given; "" = UTC, or the viewer's
	App            string
	Heads          []dayHead
	Table          []dayRow
	Before, Behind string // queries of the days before and after
	NextPage       string
	Old            bool // some hours are counted by day only
}

// dayHead is a column.
type dayHead struct {
	Clock string
	Now   bool
}

// Short is its hour only, where that is enough.
func (h dayHead) Short() string { return strings.TrimSuffix(h.Clock, ":00") }

// dayRow is a row with its links.
type dayRow struct {
	ops.DayRow
	Name, Path string
	Cells      []dayCell
}

// dayCell is an hour of a row.
type dayCell struct {
	ops.DayHour
	dayHead
	Ran, Failed dayCount
}

// dayCount is a number with a link to its runs.
type dayCount struct {
	N    int
	Path string
}

func (u *UI) day(r *http.Request, v visitor) (answer, error) {
	p := dayPage{visitor: v, Date: r.FormValue("day"), Zone: r.FormValue("zone"), App: r.FormValue("app")}
	if err := checkZone(p.Zone); err != nil {
		return answer{}, err
	}
	now, zone := u.ops.Now(), location(cmp.Or(p.Zone, "UTC"))
	date, err := time.Parse(time.DateOnly, cmp.Or(p.Date, now.In(zone).Format(time.DateOnly)))
	if err != nil {
		return answer{}, kernel.Invalid("invalid day %.40q: want YYYY-MM-DD", p.Date)
	}
	before, behind := date.AddDate(0, 0, -1), date.AddDate(0, 0, 1)
	p.Date = date.Format(time.DateOnly)
	p.Day, err = u.ops.Day(r.Context(), v.Who, ops.DayQuery{From: beginOf(date, zone), To: beginOf(behind, zone), App: p.App, After: r.FormValue("after")})
	if err != nil {
		return answer{}, err
	}
	p.Before, p.Behind = p.at(before, p.App, ""), p.at(behind, p.App, "")
	if p.Next != "" {
		p.NextPage = p.at(date, p.App, p.Next)
	}
	p.Old = p.Hours[0].Before(p.Known)
	for _, at := range p.Hours {
		p.Heads = append(p.Heads, dayHead{at.In(zone).Format("15:04"), at.Equal(now.Truncate(time.Hour))})
	}
	for _, row := range p.Rows {
		line := dayRow{DayRow: row, Name: string(row.Job), Path: u.base + "/jobs/" + string(row.Job)}
		if row.Job == "" {
			line.Name, line.Path = cmp.Or(row.App, "no app"), u.base+"/forecast/day"+p.at(date, row.App, "")
		}
		for i, h := range row.Hours {
			line.Cells = append(line.Cells, dayCell{h, p.Heads[i], dayCount{h.Ran, u.runsIn(&row, jobs.Succeeded, p.Hours[i])}, dayCount{h.Failed, u.runsIn(&row, jobs.Terminated, p.Hours[i])}})
		}
		p.Table = append(p.Table, line)
	}
	return answer{page: "day", title: "Day " + p.Date, data: p}, nil
}

// beginOf is the first instant of a date in a zone: not midnight, where clocks are set forward then.
func beginOf(date time.Time, zone *time.Location) time.Time {
	year, month, day := date.Date()
	begin := time.Date(year, month, day, 0, 0, 0, 0, zone)
	for begin.Format(time.DateOnly) < date.Format(time.DateOnly) {
		begin = begin.Add(15 * time.Minute)
	}
	return begin
}

// at returns the query of another page of the calendar.
func (p *dayPage) at(day time.Time, app, after string) string {
	q := url.Values{"day": {day.Format(time.DateOnly)}}
	for name, value := range map[string]string{"zone": p.Zone, "app": app, "after": after} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return "?" + q.Encode()
}

// runsIn returns the path of the runs of an hour.
func (u *UI) runsIn(row *ops.DayRow, state jobs.State, hour time.Time) string {
	f := runFilter{State: state.String(), Job: string(row.Job), From: hour.Format(localTime), To: hour.Add(time.Hour).Format(localTime), Zone: "UTC"}
	if row.Job == "" {
		f.App = row.App
	}
	return u.base + runsPath(f.values())
}
