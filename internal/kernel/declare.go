package kernel

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

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

// noneIsZero are the options whose jobs.None becomes 0.
var noneIsZero = []string{"MaxConcurrency", "Retries", "RetryDelay", "Timeout", "PauseAfter", "KeepFor", "KeepSucceeded", "KeepOthers"}

// settingsOf converts options into the settings of the same names. Zero options stay unset.
func settingsOf(o jobs.Options) (Settings, error) {
	var s Settings
	from, to := reflect.ValueOf(o), reflect.ValueOf(&s).Elem()
	for i := range from.NumField() {
		name, v := from.Type().Field(i).Name, from.Field(i)
		if name == "TimeZone" {
			name = "Zone"
		}
		if f := to.FieldByName(name); f.IsValid() && f.Type().Elem() == v.Type() && !unset(v) {
			f.Set(reflect.New(v.Type()))
			if v.CanInt() && v.Int() == jobs.None && slices.Contains(noneIsZero, name) {
				continue
			}
			f.Elem().Set(v)
		}
	}
	for _, t := range []*time.Time{s.Start, s.End, s.First} {
		if t != nil {
			*t = Instant(*t)
		}
	}
	if o.RetryBudget.Max == jobs.None {
		s.RetryBudget = new(jobs.Rate)
	}
	if s.RetryRules != nil {
		s.RetryRules = new(explicit(o.RetryRules))
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

func unset(v reflect.Value) bool {
	if t, ok := v.Interface().(time.Time); ok {
		return t.IsZero()
	}
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}
