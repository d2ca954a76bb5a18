package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"
)

// Options that are left out say nothing, so that the defaults hold.
func TestZeroOptionsSayNothing(t *testing.T) {
	s, err := settingsOf(Options{})
	if err != nil || len(s.Given()) != 0 {
		t.Errorf("zero options say %v, %v", s.Given(), err)
	}
}

// Each option arrives in the setting of its name. An option that is added and not carried over fails here.
func TestOptionsBecomeSettings(t *testing.T) {
	o := filled[struct {
		Name, Description string
		Tags              []string
		TimeZone          string
		Start, End        time.Time
		Gap               Gap
		Twice             Twice
		MaxConcurrency    int
		Limits            []Limit
		Overlap           Overlap
		Retries           int
		RetryDelay        time.Duration
		RetryDelayMax     time.Duration
		Timeout           time.Duration
		OnLost            OnLost
		LeaseLost         LeaseLost
		Misfire           Misfire
		Priority          int
		StartWithin       time.Duration
		Disabled          bool
		Route             Route
		RouteBy           string
		Needs             []string
		Pin               string
		PinAway           PinAway
		CodeVersion       CodeVersion
		Slots             int
		First             time.Time
		TTL               time.Duration
		Early             time.Duration
		Jitter            time.Duration
		Calendars         []string
		Rate              Rate
		RetryFactor       float64
		RetryJitter       Jitter
		RetryRules        []RetryRule
		RetryBudget       Rate
		PauseAfter        int
		OnSuccess         []string
		OnFailure         []string
		Parent            string
		KeepFor           time.Duration
		KeepSucceeded     int
		KeepOthers        int
	}](1)
	var options Options
	from, to := reflect.ValueOf(o), reflect.ValueOf(&options).Elem()
	for f := range from.Type().Fields() {
		to.FieldByName(f.Name).Set(from.FieldByName(f.Name))
	}
	options.Cron, options.Args = "0 0 * * * *", chargeArgs{"c7"}
	for f := range to.Type().Fields() {
		if v := to.FieldByName(f.Name); v.IsZero() && !slices.Contains([]string{"Key", "Version", "Every", "AfterEnd"}, f.Name) {
			t.Errorf("option %s is new: carry it over, and add it here", f.Name)
		}
	}
	s, err := settingsOf(options)
	if err != nil {
		t.Fatal(err)
	}
	// A job with code of its own has no need of requests.
	want := slices.DeleteFunc(Fields(), func(name string) bool { return name == "http" })
	if got := s.Given(); !slices.Equal(got, want) {
		t.Errorf("options say %v of %v", got, want)
	}
	for f := range from.Type().Fields() {
		name := f.Name
		if name == "TimeZone" {
			name = "Zone"
		}
		if got := reflect.ValueOf(s).FieldByName(name).Elem().Interface(); !reflect.DeepEqual(got, from.FieldByName(f.Name).Interface()) {
			t.Errorf("option %s became %v", f.Name, got)
		}
	}
	if *s.Schedule != "0 0 * * * *" || string(*s.Args) != `{"customer":"c7"}` {
		t.Errorf("schedule %q, args %s", *s.Schedule, *s.Args)
	}
}

// None is zero, said aloud: it beats the defaults, which a plain zero does not.
func TestNone(t *testing.T) {
	s, err := settingsOf(Options{MaxConcurrency: None, Timeout: None, Retries: None})
	if err != nil {
		t.Fatal(err)
	}
	d := &Definition{Key: "k", Kind: Recurring, Code: s}
	p := d.Resolve(&Global{RecurringDefaults: Settings{MaxConcurrency: new(5), Timeout: new(time.Minute), Retries: new(3)}})
	if p.MaxConcurrency != 0 || p.Timeout != 0 || p.Retries != 0 {
		t.Errorf("None became concurrency %d, timeout %v, retries %d", p.MaxConcurrency, p.Timeout, p.Retries)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestEveryBecomesASchedule(t *testing.T) {
	d, err := Declare(NewRecurring(&closeDay{}, Options{Every: 90 * time.Second}))
	if err != nil || *d.Code.Schedule != "@every 1m30s" {
		t.Errorf("%v, %v", d.Code.Schedule, err)
	}
}

func TestDeclareRefuses(t *testing.T) {
	f := RecurringFunc(func(context.Context) error { return nil })
	for what, job := range map[string]Job{
		"a schedule twice":         NewRecurring(&closeDay{}, Options{Cron: "@daily", Every: time.Hour}),
		"a triggered job's cron":   NewTriggered(charge{}, Options{Cron: "@daily"}),
		"a triggered job's every":  NewTriggered(charge{}, Options{Every: time.Second}),
		"a bad key":                NewRecurring(&closeDay{}, Options{Key: "a b"}),
		"a negative version":       NewRecurring(&closeDay{}, Options{Version: -1}),
		"retries -2":               NewRecurring(&closeDay{}, Options{Retries: -2}),
		"concurrency -2":           NewRecurring(&closeDay{}, Options{MaxConcurrency: -2}),
		"a timeout of -1 s":        NewRecurring(&closeDay{}, Options{Timeout: -time.Second}),
		"an unknown overlap":       NewRecurring(&closeDay{}, Options{Overlap: "maybe"}),
		"start after end":          NewRecurring(&closeDay{}, Options{Start: noon, End: noon.Add(-1)}),
		"arguments beyond JSON":    NewRecurring(&closeDay{}, Options{Args: make(chan int)}),
		"arguments of a list":      NewTriggered(charge{}, Options{Args: []int{1}}),
		"a function without a key": NewRecurring(f, Options{}),
		"no job at all":            NewRecurring(nil, Options{Key: "k"}),
	} {
		if _, err := Declare(job); !errors.Is(err, BadInput) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Declare(NewRecurring(f, Options{Key: "k"})); err != nil {
		t.Errorf("a function with a key: %v", err)
	}
}

func TestKindsInJSON(t *testing.T) {
	b, err := json.Marshal([]Kind{Recurring, Triggered})
	if err != nil || string(b) != `["recurring","triggered"]` {
		t.Errorf("%s, %v", b, err)
	}
}
