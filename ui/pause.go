package ui

import (
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// pauseForm is the form of a pause: the reason, and its end.
type pauseForm struct {
	visitor
	Key    jobs.Key
	Zones  []string
	Back   string
	Reason string
	Until  string
	At     string
	Zone   string
	Fault  string
}

func (u *UI) pauseFormOf(r *http.Request, v visitor) (pauseForm, error) {
	f := pauseForm{visitor: v, Key: jobs.Key(r.PathValue("key")), Back: r.FormValue("back"), Reason: r.FormValue("reason"), Until: r.FormValue("until"), At: r.FormValue("at"), Zone: r.FormValue("zone")}
	job, err := u.ops.Job(r.Context(), v.Who, f.Key, 0)
	if err != nil {
		return f, err
	}
	f.Zones = zones(job.Definition.Policy.Zone)
	if f.Zone == "" {
		f.Zone = f.Zones[0]
	}
	return f, nil
}

func (u *UI) pausePage(r *http.Request, v visitor) (answer, error) {
	f, err := u.pauseFormOf(r, v)
	return answer{page: "pause", title: "Pause " + string(f.Key), data: f}, err
}

func (u *UI) pause(r *http.Request, v visitor) (answer, error) {
	f, err := u.pauseFormOf(r, v)
	if err != nil {
		return answer{}, err
	}
	until, err := pauseEnd(f.Until, f.At, f.Zone, u.ops.Now())
	if err == nil {
		_, err = u.ops.Pause(r.Context(), v.Who, kernel.Pause{Key: f.Key, Reason: f.Reason, Until: until})
	}
	if jobs.CodeOf(err) == jobs.BadInput {
		f.Fault = said(err)
		return answer{page: "pause", title: "Pause " + string(f.Key), data: f, status: http.StatusUnprocessableEntity}, nil
	}
	return backTo(f.Back, f.Key, "paused"), err
}

// backTo redirects to the page of the form, or to that of its job.
func backTo(back string, key jobs.Key, did string) answer {
	if back == "" {
		return goTo("/jobs/"+string(key), did)
	}
	return goTo(local(back), did)
}

// pauseEnd returns the chosen end of a pause; zero: until resumed. Days and times are those of the zone.
func pauseEnd(word, at, zone string, now time.Time) (time.Time, error) {
	if err := checkZone(zone); err != nil {
		return time.Time{}, err
	}
	local := now.In(location(zone))
	morning := func(days int) (time.Time, error) {
		return kernel.Instant(time.Date(local.Year(), local.Month(), local.Day()+days, 9, 0, 0, 0, local.Location())), nil
	}
	switch word {
	case "", "resumed":
		return time.Time{}, nil
	case "hour":
		return kernel.Instant(now.Add(time.Hour)), nil
	case "tomorrow":
		return morning(1)
	case "monday":
		return morning(7 - (int(local.Weekday())+6)%7)
	case "at":
		t, err := parseWall(at, zone)
		if err == nil && !t.After(now) {
			err = kernel.Invalid("the pause would end in the past, at %s", t.In(location(zone)).Format("2006-01-02 15:04"))
		}
		return t, err
	}
	return time.Time{}, kernel.Invalid("invalid end %.20q: want resumed, hour, tomorrow, monday or at", word)
}

func (u *UI) resume(r *http.Request, v visitor) (answer, error) {
	key := jobs.Key(r.PathValue("key"))
	_, _, err := u.ops.Resume(r.Context(), v.Who, key, ops.Resumption{Held: ops.Held(r.PostFormValue("held")), Missed: ops.Missed(r.PostFormValue("missed"))})
	return backTo(r.PostFormValue("back"), key, "resumed"), err
}
