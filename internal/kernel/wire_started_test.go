package kernel

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

func started(n int) *Run {
	due := time.Date(2026, 5, 4, 3, 2, 1, n, time.UTC)
	return &Run{Tenant: "t", ID: DerivedID(fmt.Sprint(n)), Job: jobs.ID{7}, Key: "mail.welcome", App: "mail", Revision: 3, Kind: Triggered, State: jobs.Processing,
		Origin: FromCode, Actor: "client:shop", Args: []byte(`{"n":1}`), Terms: Terms{Retries: 3, RetryDelay: time.Second, Timeout: time.Minute},
		Due: due, Created: due, Queued: due, Started: due.Add(time.Millisecond), Deadline: due.Add(time.Minute + time.Millisecond), Attempt: 1, Worker: "mail-1-abcd"}
}

// A worker gets what it needs of each run, whatever the run before it in the list was.
func TestStartedRunsReadBack(t *testing.T) {
	other := started(2)
	other.Key, other.Job, other.Terms.Failing, other.Place = "x.y", jobs.ID{8}, &Failing{Factor: 3, Rules: []jobs.RetryRule{{Codes: []string{"a"}, Attempts: 1}}}, &Place{Route: jobs.RouteBroadcast, Index: 1, Total: 2}
	other.Checkpoint, other.Trace, other.Parent, other.Failures, other.Losses, other.Execution, other.Depth = []byte("1"), "00-a-b-01", jobs.ID{4}, 2, 1, 9, 3
	other.Feedback = &Feedback{}
	odd := started(3)
	odd.Created, odd.Queued, odd.Deadline, odd.Args = odd.Due.Add(-time.Hour), odd.Due.Add(-1), time.Time{}, nil
	list := []*Run{started(0), started(1), other, odd, started(4)}

	var b []byte
	var last *Run
	for _, run := range list {
		run := *run
		run.Moves, run.Gates, run.Turn = make([]Move, 3), []string{"job/x"}, 5 // not for workers
		b = AppendStarted(b, &run, last)
		last = &run
	}
	last = nil
	for i, want := range list {
		got, rest, err := DecodeStarted(b, last)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("run %d is read as\n%+v, %v; written was\n%+v", i, got, err, want)
		}
		b, last = rest, got
	}
	if len(b) > 0 {
		t.Errorf("%d bytes are left", len(b))
	}
}

// Damaged lists are refused, and cost no memory beyond their length.
func TestDamagedStartedRuns(t *testing.T) {
	second := AppendStarted(nil, started(1), started(0))
	if _, _, err := DecodeStarted(second, nil); err == nil {
		t.Error("a run like the one before was read without one")
	}
	whole := AppendStarted(nil, started(0), nil)
	for n := range whole {
		if _, _, err := DecodeStarted(whole[:n], nil); err == nil {
			t.Errorf("%d of %d bytes were read", n, len(whole))
		}
	}
}

// A further run of the same job takes a sixth of the bytes of a row.
func TestStartedRunsAreShort(t *testing.T) {
	first, second := AppendStarted(nil, started(0), nil), AppendStarted(nil, started(1), started(0))
	if len(second) > 60 {
		t.Errorf("the first run takes %d bytes and the next %d: want 60", len(first), len(second))
	}
}
