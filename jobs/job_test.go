package jobs

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/outcome"
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
	if err := job.Run(t.Context(), []byte(`{"customer":7}`)); !outcome.IsFinal(err) || !strings.Contains(err.Error(), "customer") {
		t.Errorf("arguments that do not fit: %v", err)
	}
	if job.Args() != reflect.TypeFor[chargeArgs]() {
		t.Errorf("args %v", job.Args())
	}
}

// requests is an Enqueuer that keeps what it is sent.
type requests []Request

func (w *requests) Enqueue(_ context.Context, all ...Request) ([]Receipt, error) {
	*w = append(*w, all...)
	runs := make([]Receipt, len(all))
	for i, c := range all {
		runs[i] = Receipt{ID: c.ID, Key: c.Key}
	}
	return runs, nil
}

func TestTrigger(t *testing.T) {
	var w requests
	later := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	job := Trigger[chargeArgs]("billing.charge")
	run, err := job.Enqueue(t.Context(), &w, chargeArgs{"c7"}, After(time.Hour), UniqueFor("c7", time.Minute), WithPriority(3), WithRetries(0), WithTimeout(time.Second))
	if err != nil || run.ID != w[0].ID {
		t.Fatal(run, err)
	}
	want := Request{ID: run.ID, Key: "billing.charge", Args: []byte(`{"customer":"c7"}`), ArgsType: reflect.TypeFor[chargeArgs](), Delay: time.Hour, Unique: "c7",
		UniqueFor: time.Minute, Priority: new(3), Retries: new(0), Timeout: new(time.Second)}
	if !reflect.DeepEqual(w[0], want) {
		t.Errorf("requested %+v", w[0])
	}
	if runs, err := job.EnqueueAll(t.Context(), &w, []chargeArgs{{"a"}, {"b"}}, At(later)); err != nil || len(runs) != 2 || runs[0].ID == runs[1].ID {
		t.Errorf("a batch: %v, %v", runs, err)
	}
	if !w[2].Due.Equal(later) || string(w[2].Args) != `{"customer":"b"}` {
		t.Errorf("requested %+v", w[2])
	}
	if _, err := Trigger[chan int]("k").Enqueue(t.Context(), &w, nil); !errors.Is(err, BadInput) {
		t.Errorf("arguments beyond JSON: %v", err)
	}
	if len(w) != 3 {
		t.Errorf("%d requests were sent, want 3: a bad one was among them", len(w))
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
