package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// weather is a way to the store that refuses each try with the next code, and the last code for good.
type weather struct {
	codes []jobs.Code
	tries int
}

func (w *weather) Apply(_ context.Context, batch []kernel.Envelope) []metastore.Result {
	code := w.codes[min(w.tries, len(w.codes)-1)]
	w.tries++
	return metastore.Refused(batch, kernel.Refuse(code, "try %d", w.tries))
}

// When patience ends, a command that one of the tries may have applied is not reported as not applied.
func TestDoubtOutlastsLaterRefusals(t *testing.T) {
	for _, c := range []struct {
		codes []jobs.Code
		want  jobs.Code
	}{
		{[]jobs.Code{jobs.Unavailable}, jobs.Unavailable},
		{[]jobs.Code{jobs.Unknown, jobs.Unavailable}, jobs.Unknown},
		{[]jobs.Code{jobs.Unavailable, jobs.Unknown, jobs.Unavailable}, jobs.Unknown},
		{[]jobs.Code{jobs.Unknown, jobs.Unavailable, jobs.Stale}, jobs.Stale},
	} {
		synctest.Test(t, func(t *testing.T) {
			way := &weather{codes: c.codes}
			w := &Worker{store: way}
			var got []jobs.Code
			w.send(t.Context(), []kernel.Envelope{w.envelope(kernel.Checkpoint{})}, 10*time.Second, func(_ int, r metastore.Result) {
				got = append(got, jobs.CodeOf(r.Err))
			})
			if len(got) != 1 || got[0] != c.want {
				t.Errorf("%q: answered with %q after %d tries", c.codes, got, way.tries)
			}
		})
	}
}
