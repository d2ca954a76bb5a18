package kernel

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/fastjson"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The limits of a job's values.
const (
	MaxArgs           = 256 << 10
	MaxResult         = 64 << 10
	MaxError          = 16 << 10
	MaxCheckpoint     = 64 << 10
	MaxWork           = 64 << 10 // of the HTTP requests or the command of a job
	MaxDescription    = 4 << 10
	MaxNameLen        = 200
	MaxSchedule       = 1 << 10
	MaxZone           = 100
	MaxConcurrencyTop = 1_000_000
	MaxRetries        = 1_000
	MaxDuration       = 366 * 24 * time.Hour
	MaxTTL            = 100 * 366 * 24 * time.Hour
	MaxJitter         = 24 * time.Hour // of early starts, and of jitter
	MaxPriority       = 100
	MaxTags           = 32
	MaxLimits         = 8
	MaxRetryRules     = 16
	MaxCode           = plain.MaxCode            // bytes of an error code
	MaxRetryFactor    = 100                      // growth of a delay
	MaxDelay          = 5 * 366 * 24 * time.Hour // how far ahead a run may be due
	MaxBulk           = 100_000                  // runs in one bulk
	MaxKept           = 1_000_000_000            // finished runs of a job
)

// Check validates the settings, naming the field, the value and what is allowed. jobs/schedule checks the text of the
// schedule before a command is created.
func (s *Settings) Check() error {
	if err := s.checkChoices(); err != nil {
		return err
	}
	if s.Name != nil && len(*s.Name) > MaxNameLen {
		return Invalid("name has %d bytes, at most %d are allowed", len(*s.Name), MaxNameLen)
	}
	if s.Description != nil && len(*s.Description) > MaxDescription {
		return Invalid("description has %d bytes, at most %d are allowed", len(*s.Description), MaxDescription)
	}
	if s.Schedule != nil && len(*s.Schedule) > MaxSchedule {
		return Invalid("schedule has %d bytes, at most %d are allowed", len(*s.Schedule), MaxSchedule)
	}
	if s.Zone != nil && len(*s.Zone) > MaxZone {
		return Invalid("time zone has %d bytes, at most %d are allowed", len(*s.Zone), MaxZone)
	}
	if s.Tags != nil {
		if len(*s.Tags) > MaxTags {
			return Invalid("too many tags: %d of %d", len(*s.Tags), MaxTags)
		}
		for _, t := range *s.Tags {
			if t == "" || len(t) > 100 {
				return Invalid("invalid tag %.120q: want 1 to 100 bytes", t)
			}
		}
	}
	if s.Args != nil {
		if err := CheckArgs(*s.Args); err != nil {
			return err
		}
	}
	for _, name := range workSettings {
		if raw := s.Work(name); raw != nil {
			if err := checkWork(name, *raw); err != nil {
				return err
			}
		}
	}
	if err := within("max concurrency", s.MaxConcurrency, 0, MaxConcurrencyTop); err != nil {
		return err
	}
	if s.Limits != nil {
		if err := checkLimits("limit", *s.Limits); err != nil {
			return err
		}
	}
	if err := s.checkRetries(); err != nil {
		return err
	}
	if err := within("retries", s.Retries, 0, MaxRetries); err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
	}{{"retry delay", s.RetryDelay}, {"longest retry delay", s.RetryDelayMax}, {"timeout", s.Timeout}, {"start deadline", s.StartWithin}} {
		if err := within(d.name, d.v, 0, MaxDuration); err != nil {
			return err
		}
	}
	if err := errors.Join(within("ttl", s.TTL, 0, MaxTTL), within("early", s.Early, 0, MaxJitter), within("jitter", s.Jitter, 0, MaxJitter)); err != nil {
		return err
	}
	if err := errors.Join(within("keep for", s.KeepFor, 0, MaxTTL), within("keep succeeded", s.KeepSucceeded, 0, MaxKept), within("keep others", s.KeepOthers, 0, MaxKept)); err != nil {
		return err
	}
	if s.Calendars != nil {
		if len(*s.Calendars) > MaxCalendars {
			return Invalid("too many calendars: %d of %d", len(*s.Calendars), MaxCalendars)
		}
		for _, name := range *s.Calendars {
			if err := CheckName("calendar", name); err != nil {
				return err
			}
		}
	}
	if s.Handler != nil && *s.Handler != "" {
		if err := CheckName("handler", *s.Handler); err != nil {
			return err
		}
		if SystemKey(jobs.Key(*s.Handler)) { // its runs send what their arguments say, with the server's secrets
			return Refuse(jobs.Forbidden, "handler %s runs only for the scheduler: choose another handler", *s.Handler)
		}
	}
	if err := s.checkFamily(); err != nil {
		return err
	}
	if err := s.checkPlace(); err != nil {
		return err
	}
	if err := within("priority", s.Priority, -MaxPriority, MaxPriority); err != nil {
		return err
	}
	for _, t := range []struct {
		name string
		v    *time.Time
	}{{"start", s.Start}, {"end", s.End}, {"first", s.First}} {
		if t.v != nil {
			if err := checkTime(t.name, *t.v); err != nil {
				return err
			}
		}
	}
	if s.Start != nil && s.End != nil && !s.Start.IsZero() && !s.End.IsZero() && s.Start.After(*s.End) {
		return Invalid("start %s is after end %s", s.Start.Format(time.RFC3339), s.End.Format(time.RFC3339))
	}
	return nil
}

// choices are the values of the settings that have a few, in the order of the documents.
var choices = map[string][]string{
	"gap":         texts(jobs.GapAfter, jobs.GapBefore, jobs.GapSkip),
	"twice":       texts(jobs.TwiceFirst, jobs.TwiceSecond, jobs.TwiceBoth),
	"overlap":     texts(jobs.OverlapSkip, jobs.OverlapQueue, jobs.OverlapQueueOne, jobs.OverlapReplace),
	"onLost":      texts(jobs.LostRetry, jobs.LostFail),
	"leaseLost":   texts(jobs.LeaseContinue, jobs.LeaseCancel),
	"misfire":     texts(jobs.MisfireOnce, jobs.MisfireAll, jobs.MisfireSkip),
	"route":       texts(Routes()...),
	"pinAway":     texts(jobs.PinWait, jobs.PinAny),
	"codeVersion": texts(jobs.CodeAny, jobs.CodeCurrent),
	"retryJitter": texts(jobs.JitterHalf, jobs.JitterFull, jobs.JitterNone),
}

func texts[T ~string](values ...T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// Choices returns the values that a setting may have, if there are only a few.
func Choices(name string) []string { return slices.Clone(choices[name]) }

func (s *Settings) checkChoices() error {
	v := reflect.ValueOf(s).Elem()
	for i, name := range fieldNames {
		if allowed, ok := choices[name]; ok && !v.Field(i).IsNil() {
			if text := v.Field(i).Elem().String(); !slices.Contains(allowed, text) {
				return Invalid("invalid %s %.40q: want one of %q", name, text, allowed)
			}
		}
	}
	return nil
}

// checkTime keeps times within the range of Unix nanoseconds, and so of rows. The zero time is not set.
func checkTime(what string, t time.Time) error {
	if y := t.UTC().Year(); !t.IsZero() && (y < 1970 || y > 2199) {
		return Invalid("invalid %s %s: want a year from 1970 to 2199", what, t.Format(time.RFC3339))
	}
	return nil
}

func within[T int | time.Duration](what string, v *T, lo, hi T) error {
	if v != nil && (*v < lo || *v > hi) {
		return Invalid("invalid %s %v: want %v to %v", what, *v, lo, hi)
	}
	return nil
}

func oneOf[T ~string](what string, v *T, allowed ...T) error {
	if v == nil {
		return nil
	}
	for _, a := range allowed {
		if *v == a {
			return nil
		}
	}
	return Invalid("invalid %s %.40q: want one of %q", what, string(*v), allowed)
}

// CheckArgs validates arguments: a JSON object of at most MaxArgs bytes and 64 levels, or none.
func CheckArgs(args []byte) error {
	switch {
	case len(args) == 0:
		return nil
	case len(args) > MaxArgs:
		return Invalid("arguments have %d bytes, at most %d are allowed: send a reference to the data instead", len(args), MaxArgs)
	case fastjson.Object(args):
		return nil
	}
	if err := checkJSON("arguments", args, fastjson.MaxLevels); err != nil {
		return err
	}
	return Invalid("arguments must be a JSON object such as {\"customer\":\"c7\"}, not %.20q", args)
}

// resultLevels is how deep a result may be nested: it becomes an argument of the runs that follow, in "parent".
const resultLevels = fastjson.MaxLevels - 2

// CheckResult validates the result of a run: any JSON that a run that follows can get, or none.
func CheckResult(raw []byte) error { return checkValue("result", raw, MaxResult, resultLevels) }

// CheckCheckpoint validates what a handler stores for its next attempt: any JSON, or none.
func CheckCheckpoint(raw []byte) error {
	return checkValue("checkpoint", raw, MaxCheckpoint, fastjson.MaxLevels)
}

func checkValue(what string, raw []byte, most, levels int) error {
	switch {
	case len(raw) == 0:
		return nil
	case len(raw) > most:
		return Invalid("%s has %d bytes, at most %d are allowed: keep the data elsewhere and a reference here", what, len(raw), most)
	}
	return checkJSON(what, raw, levels)
}

// checkJSON returns what is wrong with JSON that comes from a caller. Each of it passes here, whatever it is for.
func checkJSON(what string, raw []byte, levels int) error {
	if why := fastjson.Fault(raw, levels); why != "" {
		return Invalid("%s: %s", what, why)
	}
	return nil
}

// checkSchema validates the schema of arguments as JSON. Whether it is a schema is seen where it is used.
func (d *Declaration) checkSchema() error {
	switch {
	case len(d.Schema) == 0:
		return nil
	case len(d.Schema) > 256<<10:
		return Invalid("job %s: the schema of its arguments has %d bytes, at most 256 KiB are allowed", d.Key, len(d.Schema))
	}
	return checkJSON(fmt.Sprintf("job %s: the schema of its arguments", d.Key), d.Schema, fastjson.MaxLevels)
}

// workExamples are shown in errors.
var workExamples = map[string]string{"http": `{"request":[{"url":"https://example.com/"}]}`, "exec": `{"argv":["backup","--all"]}`}

// checkWork validates the setting http or exec for rows; httpspec and execspec check its fields, before a command is
// created. Nothing, or {}, means that the job has none.
func checkWork(name string, raw []byte) error {
	switch {
	case len(raw) == 0:
		return nil
	case len(raw) > MaxWork:
		return Invalid("%s has %d bytes, at most %d are allowed", name, len(raw), MaxWork)
	case !fastjson.Object(raw) && fastjson.Value(raw, fastjson.MaxLevels):
		return Invalid("%s must be a JSON object such as %s, not %.20q", name, workExamples[name], raw)
	}
	return checkJSON(name, raw, fastjson.MaxLevels)
}
