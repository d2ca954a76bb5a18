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

// Each option becomes the setting of its name, and each setting but http and exec has an option: those stand in for code.
func TestOptionsBecomeSettings(t *testing.T) {
	const optionsFile, settingsFile = "jobs/job.go", "internal/kernel/definition.go"
	o := jobs.Options{Cron: "0 0 * * * *", Args: orderArgs{"c7"}}
	from := reflect.ValueOf(&o).Elem()
	settings := reflect.TypeFor[Settings]()
	named := map[string]string{"TimeZone": "Zone"}
	for f := range from.Type().Fields() {
		if slices.Contains([]string{"Key", "Version", "Cron", "Every", "AfterEnd", "Args"}, f.Name) {
			continue
		}
		if named[f.Name] == "" {
			named[f.Name] = f.Name
		}
		if s, ok := settings.FieldByName(named[f.Name]); !ok || s.Type.Elem() != f.Type {
			t.Fatalf("option %s has no setting of its name and type: add it to Settings in %s", f.Name, settingsFile)
		}
		filler{1}.fill(from.FieldByName(f.Name), f.Name)
	}
	s, err := settingsOf(o)
	if err != nil {
		t.Fatal(err)
	}
	given := s.Given()
	for _, name := range Fields() {
		if !slices.Contains(workSettings, name) && !slices.Contains(given, name) {
			t.Errorf("setting %s has no option: add a field of its name to Options in %s", name, optionsFile)
		}
	}
	to := reflect.ValueOf(s)
	for option, name := range named {
		if got, want := to.FieldByName(name).Elem().Interface(), from.FieldByName(option).Interface(); !reflect.DeepEqual(got, want) {
			t.Errorf("option %s %v became %v", option, want, got)
		}
	}
	if *s.Schedule != "0 0 * * * *" || string(*s.Args) != `{"customer":"c7"}` {
		t.Errorf("schedule %q, args %s", *s.Schedule, *s.Args)
	}
}

// None is zero, said aloud: it beats the defaults, which a plain zero does not.
func TestNone(t *testing.T) {
	s, err := settingsOf(jobs.Options{MaxConcurrency: jobs.None, Timeout: jobs.None, Retries: jobs.None, RetryDelay: jobs.None, PauseAfter: jobs.None,
		KeepFor: jobs.None, KeepSucceeded: jobs.None, KeepOthers: jobs.None, RetryBudget: jobs.Rate{Max: jobs.None}, Priority: -1})
	if err != nil {
		t.Fatal(err)
	}
	d := &Definition{Key: "k", Kind: Recurring, Code: s}
	p := d.Resolve(&Global{Defaults: Settings{MaxConcurrency: new(5), Timeout: new(time.Minute), Retries: new(3)}})
	if p.MaxConcurrency != 0 || p.Timeout != 0 || p.Retries != 0 {
		t.Errorf("None became concurrency %d, timeout %v, retries %d", p.MaxConcurrency, p.Timeout, p.Retries)
	}
	if *s.RetryDelay != 0 || *s.PauseAfter != 0 || *s.KeepFor != 0 || *s.KeepSucceeded != 0 || *s.KeepOthers != 0 || *s.RetryBudget != (jobs.Rate{}) {
		t.Errorf("None became %+v", p)
	}
	if *s.Priority != -1 {
		t.Errorf("priority -1 became %d", *s.Priority)
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
