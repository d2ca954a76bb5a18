package bubble_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/bubble"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// call asks the API and reads its answer.
func call[T any](t *testing.T, a http.Handler, method, path, body string) (answer T) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if w.Code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// Every run records what triggered it, and runs are found by that.
func TestS3_10ARunKnowsWhatTriggeredIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		nothing := jobs.TriggeredFunc[note](func(context.Context, note) error { return nil })
		c.Start(worker.Config{}, nightly(&busy{}, jobs.Options{MaxConcurrency: 10}),
			jobs.NewTriggered(nothing, jobs.Options{Key: "first", OnSuccess: []string{"second"}}), jobs.NewTriggered(nothing, jobs.Options{Key: "second"}))
		c.Pass(90 * time.Minute) // cron, at one o'clock
		o := opsOf(c)
		a := api.New(api.Config{Ops: o})
		byCode, err := jobs.Trigger[note]("first").Enqueue(t.Context(), c.Client, note{}) // code, and then its child
		if err != nil {
			t.Fatal(err)
		}
		byPerson, err := o.Trigger(t.Context(), person, kernel.Create{Key: "second", Origin: kernel.FromPerson}) // as a page does
		if err != nil {
			t.Fatal(err)
		}
		byAPI := call[api.Run](t, a, "POST", "/api/v1/jobs/second/trigger", `{}`)
		c.Pass(time.Second)
		again := call[api.Run](t, a, "POST", "/api/v1/runs/"+byAPI.ID+"/retry", `{}`)
		filled := call[api.Backfill](t, a, "POST", "/api/v1/jobs/nightly/backfill", `{"from":"1999-12-31T22:00:00Z","to":"1999-12-31T23:00:00Z"}`)
		if filled.Runs != 1 || filled.Had != 0 {
			t.Fatalf("the backfill made %+v", filled)
		}
		c.Pass(time.Minute)
		for _, x := range []struct {
			origin          kernel.Origin
			id, job, parent string
		}{
			{kernel.FromCron, "", "nightly", ""}, {kernel.FromCode, byCode.ID.String(), "first", ""}, {kernel.FromPerson, byPerson.ID.String(), "second", ""},
			{kernel.FromAPI, byAPI.ID, "second", ""}, {kernel.FromRetry, again.ID, "second", byAPI.ID},
			{kernel.FromParent, "", "second", byCode.ID.String()}, {kernel.FromBackfill, "", "nightly", filled.ID},
		} {
			list := call[struct{ Items []api.Run }](t, a, "GET", "/api/v1/runs?origin="+string(x.origin), "")
			if len(list.Items) != 1 {
				t.Errorf("%d runs are of origin %s", len(list.Items), x.origin)
				continue
			}
			in := list.Items[0]
			if x.id != "" && in.ID != x.id || string(in.Job) != x.job || in.Parent != x.parent || in.State != "Succeeded" || in.Origin != string(x.origin) {
				t.Errorf("of origin %s: %+v", x.origin, in)
			}
		}
		// A resume is shown in the same way.
		c.Do(kernel.Pause{Key: "nightly"})
		c.Pass(2 * time.Hour)
		resumed := call[api.ResumedJob](t, a, "POST", "/api/v1/jobs/nightly/resume", `{"missed":"once"}`)
		if resumed.Backfill == nil || resumed.Backfill.Runs != 1 {
			t.Errorf("resumed: %+v", resumed.Backfill)
		}
		c.Pass(time.Second)
	})
}
