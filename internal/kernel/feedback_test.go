package kernel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A row keeps the newest reports, however many a called service sends; reports after the final one are ignored.
func TestReportsAreBounded(t *testing.T) {
	key := make([]byte, FeedbackKey)
	run := Run{ID: jobs.ID{1}, State: jobs.Processing, Attempt: 1, Feedback: &Feedback{Key: key, Attempt: 1}}
	hear := func(report string, final bool) (again bool) {
		t.Helper()
		next, again, err := run.Report(Report{ID: run.ID, Attempt: 1, Signature: run.Feedback.Sign(run.ID, 1, 0), Report: []byte(report), Final: final})
		if err != nil {
			t.Fatal(err)
		}
		run = next
		return again
	}
	for i := range 1000 {
		hear(fmt.Sprint(i, strings.Repeat("x", i*4)), false)
		size := 0
		for _, r := range run.Feedback.Reports {
			size += len(r)
		}
		if n := len(run.Feedback.Reports); n > keptReports || n > 1 && size > keptFeedback {
			t.Fatalf("after %d reports the row has %d of %d bytes", i+1, n, size)
		}
	}
	if !hear(string(run.Feedback.Reports[len(run.Feedback.Reports)-1]), false) || run.Feedback.Count != 1000 {
		t.Errorf("the same report again counts: %d", run.Feedback.Count)
	}
	hear("the end", true)
	if !hear("more", false) || !hear("another end", true) || run.Feedback.Count != 1001 || string(run.Feedback.Reports[len(run.Feedback.Reports)-1]) != "the end" {
		t.Errorf("what comes after the last report counts: %d reports", run.Feedback.Count)
	}
	if _, _, err := run.Report(Report{ID: run.ID, Attempt: 1, Nonce: 1, Signature: run.Feedback.Sign(run.ID, 1, 0)}); !errors.Is(err, ErrNotSigned) {
		t.Errorf("the signature of another request: %v", err)
	}
}
