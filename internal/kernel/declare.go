package kernel

import (
	"encoding/json"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Declare returns the declaration of a job for registration. The worker adds the schema of the arguments.
func Declare(j jobs.Job) (Declaration, error) {
	if err := j.Err(); err != nil {
		return Declaration{}, err
	}
	code, err := settingsOf(j.Options())
	if err != nil {
		return Declaration{}, fmt.Errorf("job %s: %w", j.Key(), err)
	}
	d := Declaration{Key: j.Key(), Kind: Recurring, Version: j.Options().Version, Code: code}
	if j.Args() != nil {
		d.Kind = Triggered
	}
	return d, d.Check()
}

// Check validates a declaration.
func (d *Declaration) Check() error {
	if err := d.Key.Check(); err != nil {
		return err
	}
	switch {
	case d.Kind != Recurring && d.Kind != Triggered:
		return Invalid("invalid kind of job %s: want recurring or triggered", d.Key)
	case d.Kind == Triggered && d.Code.Schedule != nil && *d.Code.Schedule != "":
		return Invalid("job %s: a triggered job has no schedule; make it a recurring one, or trigger it from one", d.Key)
	case d.Version < 0:
		return Invalid("invalid version of job %s: %d is negative", d.Key, d.Version)
	}
	if err := d.Code.Check(); err != nil {
		return fmt.Errorf("job %s: %w", d.Key, err)
	}
	return nil
}

func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// unbounded returns a pointer to a limit, with 0 for None.
func unbounded[T ~int | ~int64](v T) *T {
	if v == jobs.None {
		return new(T)
	}
	return given(v)
}

// settingsOf converts zero fields into unset ones and None into 0.
func settingsOf(o jobs.Options) (Settings, error) {
	s := Settings{
		Name: given(o.Name), Description: given(o.Description), Zone: given(o.TimeZone),
		Gap: given(o.Gap), Twice: given(o.Twice),
		MaxConcurrency: given(o.MaxConcurrency), Overlap: given(o.Overlap), Retries: given(o.Retries),
		RetryDelay: unbounded(o.RetryDelay), RetryDelayMax: given(o.RetryDelayMax), Timeout: given(o.Timeout),
		OnLost: given(o.OnLost), LeaseLost: given(o.LeaseLost), Misfire: given(o.Misfire), Priority: given(o.Priority),
		StartWithin: given(o.StartWithin), Disabled: given(o.Disabled),
		Route: given(o.Route), RouteBy: given(o.RouteBy), Pin: given(o.Pin), PinAway: given(o.PinAway), CodeVersion: given(o.CodeVersion), Slots: given(o.Slots),
		TTL: given(o.TTL), Early: given(o.Early), Jitter: given(o.Jitter),
	}
	if len(o.Needs) > 0 {
		s.Needs = &o.Needs
	}
	s.Rate, s.RetryFactor, s.RetryJitter = given(o.Rate), given(o.RetryFactor), given(o.RetryJitter)
	s.RetryBudget, s.PauseAfter = given(o.RetryBudget), given(o.PauseAfter)
	s.Parent = given(o.Parent)
	if len(o.OnSuccess) > 0 {
		s.OnSuccess = &o.OnSuccess
	}
	if len(o.OnFailure) > 0 {
		s.OnFailure = &o.OnFailure
	}
	s.KeepFor, s.KeepSucceeded, s.KeepOthers = unbounded(o.KeepFor), unbounded(o.KeepSucceeded), unbounded(o.KeepOthers)
	if o.RetryBudget.Max == jobs.None {
		s.RetryBudget = new(jobs.Rate)
	}
	if o.PauseAfter == jobs.None {
		*s.PauseAfter = 0
	}
	if len(o.RetryRules) > 0 {
		s.RetryRules = new(explicit(o.RetryRules))
	}
	if o.MaxConcurrency == jobs.None {
		*s.MaxConcurrency = 0
	}
	if o.Timeout == jobs.None {
		*s.Timeout = 0
	}
	if o.Retries == jobs.None {
		*s.Retries = 0
	}
	if len(o.Tags) > 0 {
		s.Tags = &o.Tags
	}
	if len(o.Limits) > 0 {
		s.Limits = &o.Limits
	}
	if !o.Start.IsZero() {
		s.Start = new(Instant(o.Start))
	}
	if !o.End.IsZero() {
		s.End = new(Instant(o.End))
	}
	if !o.First.IsZero() {
		s.First = new(Instant(o.First))
	}
	if len(o.Calendars) > 0 {
		s.Calendars = &o.Calendars
	}
	switch {
	case o.AfterEnd && o.Every == 0:
		return s, Invalid("AfterEnd is set, but Every is not: only an interval can count from the end of a run")
	case o.Cron != "" && o.Every != 0:
		return s, Invalid("both Cron %q and Every %v are set: set one of them", o.Cron, o.Every)
	case o.Cron != "":
		s.Schedule = &o.Cron
	case o.Every != 0:
		s.Schedule = new("@every " + o.Every.String())
		if o.AfterEnd {
			*s.Schedule += plain.AfterEndSuffix
		}
	}
	if o.Args != nil {
		raw, err := json.Marshal(o.Args)
		if err != nil {
			return s, Invalid("cannot encode default arguments as JSON: %v", err)
		}
		s.Args = new(json.RawMessage(raw))
	}
	return s, nil
}
