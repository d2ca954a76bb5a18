package alarms

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/webhook"
)

// Deliver returns the function that sends events of package webhook to a target (webhook.Config.Deliver).
func (s *Sender) Deliver(t Target) func(context.Context, webhook.Event) (time.Duration, error) {
	return func(ctx context.Context, e webhook.Event) (time.Duration, error) {
		a := s.Send(ctx, t, About(e, time.Now()))
		if a.Delivered {
			return 0, nil
		}
		err := fmt.Errorf("%s: %s", t.Kind, a.Text)
		if a.Status != 0 {
			err = fmt.Errorf("%s responds %d: %s", t.Kind, a.Status, a.Text)
		}
		if a.Final {
			return -1, err
		}
		return a.After, err
	}
}

// About returns the message of an event. now is its time if the event has none.
func About(e webhook.Event, now time.Time) Message {
	m := Message{ID: e.ID, Key: fmt.Sprintf("%s/%s/%s", e.Tenant, e.Job, e.Event), URL: e.URL, Severity: Error, At: now, Source: fmt.Sprintf("%s/%s", e.Tenant, e.Job),
		Facts: []Fact{{"Tenant", string(e.Tenant)}, {"Job", string(e.Job)}}}
	fact := func(name, value string) { m.Facts = append(m.Facts, Fact{name, value}) }
	switch e.Event {
	case "run.terminated":
		m.Title, m.Text = fmt.Sprintf("Job %s failed", e.Job), e.Error
		fact("Run", e.Run)
		fact("Attempt", strconv.FormatUint(uint64(e.Attempt), 10))
		fact("Cause", e.Cause)
		if e.Ended != nil {
			m.At = *e.Ended
		}
	case "due.missed":
		m.Title, m.Severity = fmt.Sprintf("Job %s missed %d due times", e.Job, e.Count), Warning
		if e.Count == 1 {
			m.Title = fmt.Sprintf("Job %s missed a due time", e.Job)
		}
		if e.From != nil && e.To != nil {
			fact("From", e.From.Format(time.RFC3339))
			fact("To", e.To.Format(time.RFC3339))
		}
	case "job.paused":
		m.Title, m.Text = fmt.Sprintf("Job %s paused itself", e.Job), e.Reason
	default:
		m.Title = fmt.Sprintf("Job %s: %s", e.Job, e.Event)
	}
	if e.More > 0 {
		fact("Further events", strconv.FormatUint(e.More, 10))
	}
	return m
}
