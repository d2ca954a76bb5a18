package ui

import (
	"context"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// alarmsPage lists alarms, the rules that raise them, and the targets that get messages.
type alarmsPage struct {
	visitor
	Open    []alarmRow
	More    bool // there are open alarms beyond those
	Ended   []alarmRow
	Older   uint64 // the next page has ended alarms with a number below this; 0 = there is none
	Before  uint64 // of this page; 0 = the newest
	Rules   []alarmRuleRow
	Targets []alarmTargetRow
	Fault   string
	Test    *targetTest
}

// alarmRow is an alarm in a list.
type alarmRow struct {
	*kernel.Alarm
	Title string
	Ruled bool // its rule still exists
	Acts  bool // the visitor may end it
	Sent  []alarmSentRow
	Waits []kernel.AlarmSend // targets that get a message again, because the last one failed
}

// alarmSentRow is a message with its answer, newest first.
type alarmSentRow struct {
	kernel.AlarmSent
	Word string
}

// targetTest is a target's answer to a test message.
type targetTest struct {
	Name string
	alarms.Answer
}

const endedAlarms = 25

var alarmNews = map[kernel.AlarmNews]string{kernel.AlarmRaised: "raised", kernel.AlarmAgain: "found again", kernel.AlarmOver: "resolved"}

func (u *UI) alarms(r *http.Request, v visitor) (answer, error) {
	return u.alarmsAnswer(r, v, func(*alarmsPage) {})
}

func (u *UI) alarmsAnswer(r *http.Request, v visitor, add func(*alarmsPage)) (answer, error) {
	ctx := r.Context()
	p := alarmsPage{visitor: v}
	p.Before, _ = strconv.ParseUint(r.URL.Query().Get("before"), 10, 64)
	open, err := u.ops.Alarms(ctx, v.Who, metastore.OpenAlarm, 0, metastore.MaxPage)
	if err != nil {
		return answer{}, err
	}
	ended, older, err := u.endedAlarms(ctx, v.Who, p.Before)
	if err != nil {
		return answer{}, err
	}
	settings, err := u.ops.AlarmSettings(ctx, v.Who)
	if err != nil {
		return answer{}, err
	}
	p.Open, p.More, p.Ended, p.Older = u.alarmRows(ctx, v, &settings, open), len(open) == metastore.MaxPage, u.alarmRows(ctx, v, &settings, ended), older
	for i := range settings.Rules {
		p.Rules = append(p.Rules, alarmRuleRowOf(&settings.Rules[i]))
	}
	for i := range settings.Targets {
		p.Targets = append(p.Targets, alarmTargetRowOf(&settings, &settings.Targets[i]))
	}
	add(&p)
	return answer{page: "alarms", title: "Alarms", data: p}, nil
}

// endedAlarms returns a page of ended alarms, newest first, and the number below which the next page begins.
func (u *UI) endedAlarms(ctx context.Context, who ops.Who, before uint64) (list []*kernel.Alarm, older uint64, err error) {
	for {
		page, err := u.ops.Alarms(ctx, who, metastore.AnyAlarm, before, metastore.MaxPage)
		if err != nil {
			return nil, 0, err
		}
		for _, a := range page {
			switch {
			case a.Ended.IsZero():
			case len(list) == endedAlarms:
				return list, list[endedAlarms-1].N, nil
			default:
				list = append(list, a)
			}
		}
		if len(page) < metastore.MaxPage {
			return list, 0, nil
		}
		before = page[len(page)-1].N
	}
}

func (u *UI) alarmRows(ctx context.Context, v visitor, settings *kernel.AlarmSettings, list []*kernel.Alarm) []alarmRow {
	may := map[jobs.Key]bool{}
	rows := make([]alarmRow, len(list))
	for i, a := range list {
		row := alarmRow{Alarm: a, Title: alarms.Title(a), Ruled: settings.Rule(a.Rule) != nil}
		if a.Ended.IsZero() {
			if _, known := may[a.Job]; !known {
				may[a.Job] = u.mayEnd(ctx, v, a)
			}
			row.Acts = may[a.Job]
		}
		for k := len(a.Sent) - 1; k >= 0; k-- {
			row.Sent = append(row.Sent, alarmSentRow{a.Sent[k], alarmNews[a.Sent[k].What]})
		}
		for _, s := range a.Sends {
			if s.Tries > 0 && !s.Closed {
				row.Waits = append(row.Waits, s)
			}
		}
		rows[i] = row
	}
	return rows
}

// mayEnd reports whether a visitor may end an alarm: one with a scope only if it has the alarm's job.
func (u *UI) mayEnd(ctx context.Context, v visitor, a *kernel.Alarm) bool {
	if a.Job == "" || !v.Operator() || v.Who.Scope == nil {
		return v.Everywhere()
	}
	job, err := u.ops.Job(ctx, v.Who, a.Job, 0)
	return err == nil && v.May(job.Definition)
}

// jobAlarms returns the open alarms about a job, newest first. Of thousands of open alarms it reads the newest thousand.
func (u *UI) jobAlarms(ctx context.Context, v visitor, key jobs.Key) (rows []alarmRow, _ error) {
	before := uint64(0)
	for range 5 {
		page, err := u.ops.Alarms(ctx, v.Who, metastore.OpenAlarm, before, metastore.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, a := range page {
			if a.Job == key {
				rows = append(rows, alarmRow{Alarm: a, Title: alarms.Title(a)})
			}
		}
		if len(page) < metastore.MaxPage {
			break
		}
		before = page[len(page)-1].N
	}
	return rows, nil
}

// endAlarm ends an open alarm. A condition that still holds raises it again.
func (u *UI) endAlarm(r *http.Request, v visitor) (answer, error) {
	v.Who.Reason = normal(r.PostFormValue("reason"))
	n, err := strconv.ParseUint(r.PostFormValue("number"), 10, 64)
	if err != nil {
		return answer{}, kernel.Invalid("invalid number %.40q of an alarm", r.PostFormValue("number"))
	}
	return goTo("/alarms", "alarm"), u.ops.EndAlarm(r.Context(), v.Who, n)
}

// shownAgain reports whether an error is shown above the form, or the list, that caused it.
func shownAgain(err error) bool {
	return wrong(err) || statusOf(err) == http.StatusNotFound || statusOf(err) == http.StatusTooManyRequests
}

// faulted shows the alarms again with the error of a form on their page.
func (u *UI) faulted(r *http.Request, v visitor, err error) (answer, error) {
	if !shownAgain(err) {
		return answer{}, err
	}
	a, failed := u.alarmsAnswer(r, v, func(p *alarmsPage) { p.Fault = said(err) })
	a.status = statusOf(err)
	return a, failed
}
