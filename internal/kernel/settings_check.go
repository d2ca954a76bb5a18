package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/internal/fastjson"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// What the numbers of a job may be.
const (
	MaxArgs           = 256 << 10
	MaxResult         = 64 << 10
	MaxError          = 16 << 10
	MaxCheckpoint     = 64 << 10
	MaxHTTP           = 64 << 10 // of what an HTTP job is to do
	MaxDescription    = 4 << 10
	MaxNameLen        = 200
	MaxSchedule       = 1 << 10
	MaxZone           = 100
	MaxConcurrencyTop = 1_000_000
	MaxRetries        = 1_000
	MaxDuration       = 366 * 24 * time.Hour
	MaxTTL            = 100 * 366 * 24 * time.Hour
	MaxJitter         = 24 * time.Hour // how early a run may start, and how far starts are spread
	MaxPriority       = 100
	MaxTags           = 32
	MaxLimits         = 8
	MaxRetryRules     = 16
	MaxCode           = plain.MaxCode            // bytes of an error code
	MaxRetryFactor    = 100                      // what a delay may grow by
	MaxDelay          = 5 * 366 * 24 * time.Hour // how far ahead a run may be due
	MaxBulk           = 100_000                  // runs in one bulk
	MaxKept           = 1_000_000_000            // runs of a job that are over
)

// Check says what is wrong with the settings, naming the field, the value and what is allowed; or nil. The text
// of the schedule is not judged here but by jobs/schedule, before a command is made of it.
func (s *Settings) Check() error {
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
	if err := oneOf("gap", s.Gap, jobs.GapAfter, jobs.GapBefore, jobs.GapSkip); err != nil {
		return err
	}
	if err := oneOf("twice", s.Twice, jobs.TwiceFirst, jobs.TwiceSecond, jobs.TwiceBoth); err != nil {
		return err
	}
	if s.Tags != nil {
		if len(*s.Tags) > MaxTags {
			return Invalid("tags: %d given, at most %d are allowed", len(*s.Tags), MaxTags)
		}
		for _, t := range *s.Tags {
			if t == "" || len(t) > 100 {
				return Invalid("tag %.120q: a tag has 1 to 100 bytes", t)
			}
		}
	}
	if s.Args != nil {
		if err := CheckArgs(*s.Args); err != nil {
			return err
		}
	}
	if s.HTTP != nil {
		if err := checkHTTP(*s.HTTP); err != nil {
			return err
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
	if err := oneOf("overlap", s.Overlap, jobs.OverlapSkip, jobs.OverlapQueue, jobs.OverlapQueueOne, jobs.OverlapReplace); err != nil {
		return err
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
			return Invalid("calendars: %d given, at most %d are allowed", len(*s.Calendars), MaxCalendars)
		}
		for _, name := range *s.Calendars {
			if err := CheckName("calendar", name); err != nil {
				return err
			}
		}
	}
	if err := oneOf("on lost", s.OnLost, jobs.LostRetry, jobs.LostFail); err != nil {
		return err
	}
	if err := oneOf("lease lost", s.LeaseLost, jobs.LeaseContinue, jobs.LeaseCancel); err != nil {
		return err
	}
	if err := oneOf("misfire", s.Misfire, jobs.MisfireOnce, jobs.MisfireAll, jobs.MisfireSkip); err != nil {
		return err
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

// checkTime keeps times within what Unix nanoseconds, and so rows, can hold. The zero time says nothing.
func checkTime(what string, t time.Time) error {
	if y := t.UTC().Year(); !t.IsZero() && (y < 1970 || y > 2199) {
		return Invalid("%s is %s, the year must be between 1970 and 2199", what, t.Format(time.RFC3339))
	}
	return nil
}

func within[T int | time.Duration](what string, v *T, lo, hi T) error {
	if v != nil && (*v < lo || *v > hi) {
		return Invalid("%s is %v, it must be between %v and %v", what, *v, lo, hi)
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
	return Invalid("%s is %.40q, it must be one of %q", what, string(*v), allowed)
}

// CheckArgs says what is wrong with arguments: they are a JSON object of at most MaxArgs bytes and 64 levels, or
// nothing at all.
func CheckArgs(args []byte) error {
	if len(args) == 0 {
		return nil
	}
	if len(args) > MaxArgs {
		return Invalid("arguments have %d bytes, at most %d are allowed: pass a reference to the data instead", len(args), MaxArgs)
	}
	if fastjson.Object(args) {
		return nil
	}
	depth, deepest, inText := 0, 0, false
	for i := 0; i < len(args); i++ {
		switch c := args[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	if deepest > fastjson.MaxLevels {
		return Invalid("arguments are nested %d deep, at most %d levels are allowed", deepest, fastjson.MaxLevels)
	}
	if !json.Valid(args) {
		return Invalid("arguments are not valid JSON")
	}
	if n := fastjson.Overflowing(args); n != "" {
		return Invalid("arguments have the number %.40s, which is beyond 1.8e308: send it as a text", n)
	}
	return Invalid("arguments must be a JSON object such as {\"customer\":\"c7\"}, not %.20q", args)
}

// checkHTTP says what is wrong with an HTTP job as far as rows are concerned; what its fields mean is judged by httpspec,
// before a command is made of it. Nothing, or {}, means that the job is none.
func checkHTTP(raw []byte) error {
	switch {
	case len(raw) == 0:
		return nil
	case len(raw) > MaxHTTP:
		return Invalid("http has %d bytes, at most %d are allowed", len(raw), MaxHTTP)
	case CheckArgs(raw) != nil:
		return Invalid("http must be a JSON object such as {\"request\":[{\"url\":\"https://example.com/\"}]}, not %.20q", raw)
	}
	return nil
}

// NoHTTP says of what is said about the requests of a job that they are none: nothing, or {}.
func NoHTTP(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || raw[0] == '{' && len(bytes.TrimSpace(raw[1:])) == 1
}
