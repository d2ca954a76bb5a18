package alarms

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// What is to be sent about an alarm, and when: pure functions of rows and time.

const (
	// mostTries is after how many failures a message is given up: a day after the first.
	mostTries = 32
	// firstPause and longestPause are between tries, and double.
	firstPause, longestPause = 10 * time.Second, time.Hour
)

// Due returns the message that a target of an alarm is to get now; "" = none, or not before at. A zero at means that
// nothing is known to come. r is nil if the rule was deleted.
func Due(a *kernel.Alarm, r *kernel.AlarmRule, s *kernel.AlarmSend, now time.Time) (news kernel.AlarmNews, at time.Time) {
	switch {
	case s.Closed || a.Pending:
		return "", at
	case now.Before(s.Next):
		return "", s.Next
	case !a.Ended.IsZero():
		news = kernel.AlarmOver
	case s.Reported == 0:
		news = kernel.AlarmRaised
	case a.Count <= s.Reported || r == nil || !a.Succeeded.IsZero():
		return "", at
	default:
		if at = s.At.Add(r.Pause()); now.Before(at) {
			return "", at
		}
		news = kernel.AlarmAgain
	}
	if r != nil && !r.Urgent {
		if until := QuietUntil(r, now); !until.IsZero() {
			return "", until
		}
	}
	return news, time.Time{}
}

// QuietUntil returns the end of the quiet hours that a rule has now; zero = it has none now.
func QuietUntil(r *kernel.AlarmRule, now time.Time) time.Time {
	from, ok := kernel.TimeOfDay(r.Quiet.From)
	to, also := kernel.TimeOfDay(r.Quiet.To)
	if !ok || !also || from == to {
		return time.Time{}
	}
	local := now.In(zone(r))
	for day := -1; day <= 0; day++ { // hours may begin the day before
		y, m, d := local.Date() // and not of a day before at this time, which may not exist there
		d += day
		begin := time.Date(y, m, d, 0, from, 0, 0, local.Location())
		if from > to {
			d++
		}
		if end := time.Date(y, m, d, 0, to, 0, 0, local.Location()); !now.Before(begin) && now.Before(end) {
			return end
		}
	}
	return time.Time{}
}

// zone is the rule's zone; UTC if this machine does not know it.
func zone(r *kernel.AlarmRule) *time.Location {
	if at, err := time.LoadLocation(r.Zone); err == nil {
		return at
	}
	return time.UTC
}

// Over returns why an alarm about something that happened has ended; "" = it has not. Alarms of conditions end when these
// do.
func Over(a *kernel.Alarm, r *kernel.AlarmRule, now time.Time) string {
	quiet := now.Sub(a.Last) >= r.Pause()
	switch {
	case a.Kind == kernel.AlarmFailed && !a.Succeeded.IsZero() && quiet:
		return "a run succeeded at " + clock(a.Succeeded)
	case a.Kind == kernel.AlarmMissed && quiet:
		return fmt.Sprintf("no due time was missed for %v", r.Pause())
	}
	return ""
}

// Expected returns the time from which, and by which, a job of a rule of kind AlarmExpected must have succeeded: the last
// day that is over, by its time of day. From is the same time of the day before.
func Expected(r *kernel.AlarmRule, now time.Time) (from, by time.Time) {
	at, _ := kernel.TimeOfDay(r.At)
	local := now.In(zone(r))
	for day := 0; ; day-- {
		y, m, d := local.Date()
		if by = time.Date(y, m, d+day, 0, at, 0, 0, local.Location()); !now.Before(by) {
			return time.Date(y, m, d+day-1, 0, at, 0, 0, local.Location()), by
		}
	}
}

// Retry returns how long to wait after a number of failures; 0 = the message is given up.
func Retry(tries int) time.Duration {
	if tries >= mostTries {
		return 0
	}
	return min(firstPause<<min(tries-1, 20), longestPause)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// About returns the message about an alarm. page is the address of the pages, "" for no link.
func About(a *kernel.Alarm, news kernel.AlarmNews, page string) Message {
	m := Message{ID: fmt.Sprintf("%s/%d/%s/%d", a.Tenant, a.N, news, a.Count), Key: fmt.Sprintf("%s/%d", a.Tenant, a.N), Title: Title(a), Text: a.Text,
		Severity: severity(a.Kind), At: a.Last, Source: string(a.Tenant) + "/" + cmp.Or(string(a.Job), a.App), Resolved: news == kernel.AlarmOver, Tenant: a.Tenant}
	fact := func(name, value string) {
		if value != "" {
			m.Facts = append(m.Facts, Fact{name, value})
		}
	}
	fact("Tenant", string(a.Tenant))
	fact("Job", string(a.Job))
	if a.Job == "" {
		fact("App", a.App)
	}
	fact("Rule", a.Rule)
	fact("Since", clock(a.Since))
	if a.Count > 1 {
		fact("Times", strconv.FormatUint(a.Count, 10))
	}
	if !a.Ended.IsZero() {
		m.At = a.Ended
		fact("Ended", clock(a.Ended))
		fact("Because", a.Why)
	}
	if page != "" {
		switch m.URL = page + "/alarms"; {
		case a.Job != "" && !a.Run.IsZero():
			m.URL = page + "/runs/" + a.Run.String()
		case a.Job != "":
			m.URL = page + "/jobs/" + string(a.Job)
		}
	}
	return m
}

// Title returns what an alarm is, in one line.
func Title(a *kernel.Alarm) string {
	about := a.Job
	switch a.Kind {
	case kernel.AlarmFailed:
		if a.Count > 1 {
			return fmt.Sprintf("Job %s failed %d times", about, a.Count)
		}
		return fmt.Sprintf("Job %s failed", about)
	case kernel.AlarmMissed:
		if a.Count > 1 {
			return fmt.Sprintf("Job %s missed %d due times", about, a.Count)
		}
		return fmt.Sprintf("Job %s missed a due time", about)
	case kernel.AlarmGap:
		return fmt.Sprintf("The ledger of job %s has a gap", about)
	case kernel.AlarmPaused:
		return fmt.Sprintf("Job %s paused itself", about)
	case kernel.AlarmExpected:
		return fmt.Sprintf("Job %s has not succeeded in time", about)
	case kernel.AlarmSlow:
		return fmt.Sprintf("A run of job %s is slow", about)
	case kernel.AlarmBacklog:
		return fmt.Sprintf("Runs of app %s wait", a.App)
	case kernel.AlarmNoWorker:
		return fmt.Sprintf("App %s has no worker", a.App)
	}
	return fmt.Sprintf("%s: %s", a.About(), a.Kind)
}

func severity(k kernel.AlarmKind) Severity {
	switch k {
	case kernel.AlarmMissed, kernel.AlarmSlow, kernel.AlarmBacklog:
		return Warning
	case kernel.AlarmNoWorker, kernel.AlarmGap:
		return Critical
	}
	return Error
}
