package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Options that are left out say nothing, so that the defaults hold.
func TestZeroOptionsSayNothing(t *testing.T) {
	s, err := settingsOf(jobs.Options{})
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
		Gap               jobs.Gap
		Twice             jobs.Twice
		MaxConcurrency    int
		Limits            []jobs.Limit
		Overlap           jobs.Overlap
		Retries           int
		RetryDelay        time.Duration
		RetryDelayMax     time.Duration
		Timeout           time.Duration
		OnLost            jobs.OnLost
		LeaseLost         jobs.LeaseLost
		Misfire           jobs.Misfire
		Priority          int
		StartWithin       time.Duration
		Disabled          bool
		Route             jobs.Route
		RouteBy           string
		Needs             []string
		Pin               string
		PinAway           jobs.PinAway
		CodeVersion       jobs.CodeVersion
		Slots             int
		First             time.Time
		TTL               time.Duration
		Early             time.Duration
		Jitter            time.Duration
		Calendars         []string
		Rate              jobs.Rate
		RetryFactor       float64
		RetryJitter       jobs.Jitter
		RetryRules        []jobs.RetryRule
		RetryBudget       jobs.Rate
		PauseAfter        int
		OnSuccess         []string
		OnFailure         []string
		Parent            string
		KeepFor           time.Duration
		KeepSucceeded     int
		KeepOthers        int
	}](1)
	var options jobs.Options
	from, to := reflect.ValueOf(o), reflect.ValueOf(&options).Elem()
	for f := range from.Type().Fields() {
		to.FieldByName(f.Name).Set(from.FieldByName(f.Name))
	}
	options.Cron, options.Args = "0 0 * * * *", orderArgs{"c7"}
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
	s, err := settingsOf(jobs.Options{MaxConcurrency: jobs.None, Timeout: jobs.None, Retries: jobs.None})
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
	d, err := Declare(jobs.NewRecurring(&nightly{}, jobs.Options{Every: 90 * time.Second}))
	if err != nil || *d.Code.Schedule != "@every 1m30s" {
		t.Errorf("%v, %v", d.Code.Schedule, err)
	}
}

func TestDeclareRefuses(t *testing.T) {
	f := jobs.RecurringFunc(func(context.Context) error { return nil })
	for what, job := range map[string]jobs.Job{
		"a schedule twice":         jobs.NewRecurring(&nightly{}, jobs.Options{Cron: "@daily", Every: time.Hour}),
		"a triggered job's cron":   jobs.NewTriggered(order{}, jobs.Options{Cron: "@daily"}),
		"a triggered job's every":  jobs.NewTriggered(order{}, jobs.Options{Every: time.Second}),
		"a bad key":                jobs.NewRecurring(&nightly{}, jobs.Options{Key: "a b"}),
		"a negative version":       jobs.NewRecurring(&nightly{}, jobs.Options{Version: -1}),
		"retries -2":               jobs.NewRecurring(&nightly{}, jobs.Options{Retries: -2}),
		"concurrency -2":           jobs.NewRecurring(&nightly{}, jobs.Options{MaxConcurrency: -2}),
		"a timeout of -1 s":        jobs.NewRecurring(&nightly{}, jobs.Options{Timeout: -time.Second}),
		"an unknown overlap":       jobs.NewRecurring(&nightly{}, jobs.Options{Overlap: "maybe"}),
		"start after end":          jobs.NewRecurring(&nightly{}, jobs.Options{Start: noon, End: noon.Add(-1)}),
		"arguments beyond JSON":    jobs.NewRecurring(&nightly{}, jobs.Options{Args: make(chan int)}),
		"arguments of a list":      jobs.NewTriggered(order{}, jobs.Options{Args: []int{1}}),
		"a function without a key": jobs.NewRecurring(f, jobs.Options{}),
		"no job at all":            jobs.NewRecurring(nil, jobs.Options{Key: "k"}),
	} {
		if _, err := Declare(job); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Declare(jobs.NewRecurring(f, jobs.Options{Key: "k"})); err != nil {
		t.Errorf("a function with a key: %v", err)
	}
}

func TestKindsInJSON(t *testing.T) {
	b, err := json.Marshal([]Kind{Recurring, Triggered})
	if err != nil || string(b) != `["recurring","triggered"]` {
		t.Errorf("%s, %v", b, err)
	}
}

type orderArgs struct {
	Customer string `json:"customer"`
}

type nightly struct{}

func (*nightly) Run(context.Context) error { return nil }

type order struct{}

func (order) Run(context.Context, orderArgs) error { return nil }
