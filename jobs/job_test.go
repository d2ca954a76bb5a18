package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type closeDay struct{ ran *int }

func (j *closeDay) Run(context.Context) error { *j.ran++; return nil }

type chargeArgs struct {
	Customer string `json:"customer"`
}

type charge struct{ got *[]string }

func (j charge) Run(_ context.Context, a chargeArgs) error {
	*j.got = append(*j.got, a.Customer)
	return nil
}

type generic[T any] struct{}

func (generic[T]) Run(context.Context) error { return nil }

// Options that are left out say nothing, so that the defaults hold.
func TestZeroOptionsSayNothing(t *testing.T) {
	s, err := Options{}.settings()
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
	s, err := options.settings()
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
	s, err := Options{MaxConcurrency: None, Timeout: None, Retries: None}.settings()
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
	d, err := NewRecurring(&closeDay{}, Options{Every: 90 * time.Second}).Declare()
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
		if _, err := job.Declare(); !errors.Is(err, BadInput) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := NewRecurring(f, Options{Key: "k"}).Declare(); err != nil {
		t.Errorf("a function with a key: %v", err)
	}
}

func TestDefaultKeys(t *testing.T) {
	for _, c := range []struct {
		job  Job
		want Key
	}{
		{NewRecurring(&closeDay{}, Options{}), "github.com.carillon-scheduler.carillon.jobs.closeDay"},
		{NewTriggered(charge{}, Options{}), "github.com.carillon-scheduler.carillon.jobs.charge"},
		{NewTriggered(&charge{}, Options{Key: "own"}), "own"},
	} {
		if got := c.job.Key(); got != c.want || got.Check() != nil {
			t.Errorf("%s, want %s (%v)", got, c.want, got.Check())
		}
	}
	if k := NewRecurring(generic[map[string]int]{}, Options{}).Key(); k.Check() != nil {
		t.Errorf("the key of a generic type: %v", k.Check())
	}
}

func TestRunningAJobHere(t *testing.T) {
	ran := 0
	if err := NewRecurring(&closeDay{&ran}, Options{}).Run(t.Context(), nil); err != nil || ran != 1 {
		t.Errorf("ran %d times, %v", ran, err)
	}
	var got []string
	job := NewTriggered(charge{&got}, Options{})
	for _, args := range []string{`{"customer":"c7"}`, ``, `{"customer":"c8","more":1}`} {
		if err := job.Run(t.Context(), []byte(args)); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(got, []string{"c7", "", "c8"}) {
		t.Errorf("ran with %q", got)
	}
	// Arguments that do not fit will not fit the next time either.
	if err := job.Run(t.Context(), []byte(`{"customer":7}`)); !IsFinal(err) || !strings.Contains(err.Error(), "customer") {
		t.Errorf("arguments that do not fit: %v", err)
	}
	if job.Args() != reflect.TypeFor[chargeArgs]() || job.Kind() != Triggered {
		t.Errorf("args %v, kind %v", job.Args(), job.Kind())
	}
}

// wishes is an Enqueuer that remembers what it was asked for.
type wishes []Create

func (w *wishes) Enqueue(_ context.Context, all ...Create) ([]Receipt, error) {
	*w = append(*w, all...)
	runs := make([]Receipt, len(all))
	for i, c := range all {
		runs[i] = Receipt{ID: c.ID, Key: c.Key}
	}
	return runs, nil
}

func TestTrigger(t *testing.T) {
	var w wishes
	job := Trigger[chargeArgs]("billing.charge")
	run, err := job.Enqueue(t.Context(), &w, chargeArgs{"c7"}, After(time.Hour), UniqueFor("c7", time.Minute), WithPriority(3), WithRetries(0), WithTimeout(time.Second))
	if err != nil || run.ID != w[0].ID {
		t.Fatal(run, err)
	}
	want := Create{ID: run.ID, Key: "billing.charge", Args: []byte(`{"customer":"c7"}`), Delay: time.Hour, Unique: "c7",
		UniqueFor: time.Minute, Origin: FromCode, Priority: new(3), Retries: new(0), Timeout: new(time.Second)}
	if !reflect.DeepEqual(w[0], want) {
		t.Errorf("wished %+v", w[0])
	}
	if runs, err := job.EnqueueAll(t.Context(), &w, []chargeArgs{{"a"}, {"b"}}, At(noon)); err != nil || len(runs) != 2 || runs[0].ID == runs[1].ID {
		t.Errorf("a batch: %v, %v", runs, err)
	}
	if !w[2].Due.Equal(noon) || string(w[2].Args) != `{"customer":"b"}` {
		t.Errorf("wished %+v", w[2])
	}
	if _, err := job.Enqueue(t.Context(), &w, chargeArgs{}, After(-1)); !errors.Is(err, BadInput) {
		t.Errorf("a negative delay: %v", err)
	}
	if _, err := job.EnqueueAll(t.Context(), &w, []chargeArgs{{}, {}}, After(-1)); err == nil || !strings.Contains(err.Error(), "item 0") {
		t.Errorf("a bad item in a batch: %v", err)
	}
	if _, err := Trigger[chan int]("k").Enqueue(t.Context(), &w, nil); !errors.Is(err, BadInput) {
		t.Errorf("arguments beyond JSON: %v", err)
	}
	if len(w) != 3 {
		t.Errorf("%d wishes were sent, want 3: a bad one was among them", len(w))
	}
}

// Outside a run, what handlers call is harmless.
func TestOutsideARun(t *testing.T) {
	ctx := t.Context()
	Log(ctx).Info("into the void")
	Progress(ctx, 1, 2, "half")
	if Attempt(ctx) != (AttemptInfo{}) {
		t.Error("there is an attempt outside a run")
	}
	_, loaded := Load(ctx, new(int))
	for _, err := range []error{Result(ctx, 1), Save(ctx, 1), loaded} {
		if !errors.Is(err, ErrNotRunning) {
			t.Errorf("%v", err)
		}
	}
}

func TestKindsInJSON(t *testing.T) {
	b, err := json.Marshal([]Kind{Recurring, Triggered})
	if err != nil || string(b) != `["recurring","triggered"]` {
		t.Errorf("%s, %v", b, err)
	}
}
