package bubble_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/bubble"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// person is the user in these tests.
var person = ops.Who{Actor: "person:ann", Role: ops.Admin}

func opsOf(c *bubble.System) *ops.Ops { return ops.New(ops.Config{Store: c.Store}) }

type note struct {
	Parent jobs.ParentRun `json:"parent"`
}

// A run that follows another is made with its end, gets its result, and is linked to it; a run that a handler enqueues
// is its child as well.
func TestS2_25ParentsAndChildren(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		var mu sync.Mutex
		var seen []note
		take := jobs.TriggeredFunc[note](func(_ context.Context, a note) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, a)
			return nil
		})
		charge := jobs.TriggeredFunc[struct{ Fail bool }](func(ctx context.Context, a struct{ Fail bool }) error {
			if a.Fail {
				return jobs.NoRetry(errors.New("card refused"))
			}
			if _, err := jobs.Trigger[note]("audit").Enqueue(ctx, client.From(ctx), note{}); err != nil {
				return err
			}
			return jobs.Result(ctx, map[string]int{"paid": 7})
		})
		c.Start(worker.Config{}, jobs.NewTriggered(charge, jobs.Options{Key: "charge", OnSuccess: []string{"mail"}, OnFailure: []string{"clean", "mail"}}),
			jobs.NewTriggered(take, jobs.Options{Key: "mail", MaxConcurrency: 1}), jobs.NewTriggered(take, jobs.Options{Key: "clean"}), jobs.NewTriggered(take, jobs.Options{Key: "audit"}))
		good, err := jobs.Trigger[map[string]bool]("charge").Enqueue(t.Context(), c.Client, map[string]bool{"Fail": false})
		if err != nil {
			t.Fatal(err)
		}
		c.Pass(time.Second)
		bad, err := jobs.Trigger[map[string]bool]("charge").Enqueue(t.Context(), c.Client, map[string]bool{"Fail": true})
		if err != nil {
			t.Fatal(err)
		}
		c.Pass(time.Second)
		children := func(id jobs.ID) (keys []string) {
			page, err := opsOf(c).Children(t.Context(), person, id, "", 50)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range page.Runs {
				if run.Origin != kernel.FromParent || run.State != jobs.Succeeded {
					t.Errorf("child %s of %s is %s of origin %s", run.ID, run.Key, run.State, run.Origin)
				}
				keys = append(keys, string(run.Key))
			}
			slices.Sort(keys)
			return keys
		}
		if got := children(good.ID); !slices.Equal(got, []string{"audit", "mail"}) {
			t.Errorf("after success: %v", got)
		}
		if got := children(bad.ID); !slices.Equal(got, []string{"clean", "mail"}) {
			t.Errorf("after failure: %v", got)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(seen) != 4 || !slices.ContainsFunc(seen, func(a note) bool {
			return a.Parent.Run == good.ID && a.Parent.State == jobs.Succeeded && string(a.Parent.Result) == `{"paid":7}`
		}) || !slices.ContainsFunc(seen, func(a note) bool {
			return a.Parent.Run == bad.ID && a.Parent.State == jobs.Terminated && a.Parent.Error == "card refused"
		}) {
			t.Errorf("the children got %+v", seen)
		}
		for id, why := range map[jobs.ID]string{kernel.ChildID(&kernel.Run{Tenant: "default", ID: bad.ID}, "clean"): " It follows run " + bad.ID.String() + ", by the settings of that job.",
			enqueued(t, c, good.ID): " The handler of run " + good.ID.String() + " enqueued it."} {
			if e, err := opsOf(c).ExplainRun(t.Context(), person, id); err != nil || !strings.HasSuffix(e.Why, why) {
				t.Errorf("%s is explained by %q (%v)", e.Run.Key, e.Why, err)
			}
		}
		tree, cut, err := opsOf(c).Tree(t.Context(), person, kernel.ChildID(&kernel.Run{Tenant: "default", ID: bad.ID}, "clean"), 10)
		if err != nil || cut || len(tree) != 3 || tree[0].ID != bad.ID || tree[1].Depth != 1 || tree[2].Depth != 1 {
			t.Errorf("the tree is %v (%v, %v)", tree, cut, err)
		}
	})
}

// enqueued is the child of a run that its handler enqueued.
func enqueued(t *testing.T, c *bubble.System, id jobs.ID) jobs.ID {
	t.Helper()
	for _, run := range c.Runs("audit") {
		if run.Parent == id {
			return run.ID
		}
	}
	t.Fatalf("no child of %s was enqueued", id)
	return id
}

// The logs of a run's children are read by it.
func TestS2_10And11LogsOfChildren(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		log := jobs.TriggeredFunc[note](func(ctx context.Context, a note) error {
			jobs.Log(ctx).Info("after " + string(a.Parent.Job))
			return nil
		})
		c.Start(worker.Config{}, jobs.NewTriggered(log, jobs.Options{Key: "first", OnSuccess: []string{"second"}}), jobs.NewTriggered(log, jobs.Options{Key: "second"}))
		run, err := jobs.Trigger[note]("first").Enqueue(t.Context(), c.Client, note{})
		if err != nil {
			t.Fatal(err)
		}
		c.Pass(time.Second)
		list, err := ops.New(ops.Config{Store: c.Store, Logs: c.Logs()}).ChildrenLogs(t.Context(), person, run.ID, 10)
		if err != nil || len(list) != 1 || list[0].Key != "second" || len(list[0].Lines) != 1 || list[0].Lines[0].Text != "after first" {
			t.Errorf("the children logged %+v (%v)", list, err)
		}
	})
}

// A family of jobs is deleted together, and the refusal first lists what is alive.
func TestS2_12DestroyAFamily(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		hold := jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { <-ctx.Done(); return ctx.Err() })
		c.Start(worker.Config{}, jobs.NewTriggered(hold, jobs.Options{Key: "house"}), jobs.NewTriggered(hold, jobs.Options{Key: "room", Parent: "house"}),
			jobs.NewTriggered(hold, jobs.Options{Key: "desk", Parent: "room"}), jobs.NewTriggered(hold, jobs.Options{Key: "garden"}))
		run, err := jobs.Trigger[struct{}]("desk").Enqueue(t.Context(), c.Client, struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		c.Pass(time.Second)
		o := opsOf(c)
		if _, err := o.Edit(t.Context(), person, kernel.Edit{Key: "house", Set: kernel.Settings{Parent: new("desk")}}); !errors.Is(err, jobs.Conflict) {
			t.Errorf("a job may belong to itself: %v", err)
		}
		if _, err := o.DeleteFamily(t.Context(), person, kernel.Delete{Key: "house"}, ""); !errors.Is(err, jobs.Conflict) {
			t.Errorf("a family with a live run is deleted unasked: %v", err)
		}
		gone, err := o.DeleteFamily(t.Context(), person, kernel.Delete{Key: "house"}, ops.CancelLiveRuns)
		if err != nil || gone.Cancelled != 1 || !slices.Equal(gone.Jobs, []jobs.Key{"desk", "room", "house"}) {
			t.Errorf("the deletion did %+v (%v)", gone, err)
		}
		left, err := c.Store.Definitions(t.Context(), metastore.DefinitionQuery{Tenant: jobs.DefaultTenant})
		if err != nil || len(left) != 1 || left[0].Key != "garden" {
			t.Errorf("%d jobs are left (%v)", len(left), err)
		}
		c.Pass(time.Second)
		if r, err := c.Store.Run(t.Context(), jobs.DefaultTenant, run.ID); err != nil || r.State != jobs.Cancelled || r.Lingering {
			t.Errorf("the run of the family is %+v (%v)", r, err)
		}
	})
}

// Jobs that follow each other in a circle get a warning when they are saved, and end after a bounded number of runs.
func TestCircleIsReportedAndEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		nothing := jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil })
		c.Start(worker.Config{}, jobs.NewTriggered(nothing, jobs.Options{Key: "a", OnSuccess: []string{"b"}}), jobs.NewTriggered(nothing, jobs.Options{Key: "b"}))
		job, err := opsOf(c).Edit(t.Context(), person, kernel.Edit{Key: "b", Set: kernel.Settings{OnSuccess: new([]string{"a"})}})
		if err != nil || len(job.Warnings) != 1 {
			t.Fatalf("the warnings are %q (%v)", job.Warnings, err)
		}
		if _, err := jobs.Trigger[struct{}]("a").Enqueue(t.Context(), c.Client, struct{}{}); err != nil {
			t.Fatal(err)
		}
		c.Pass(time.Minute)
		all := append(c.Runs("a"), c.Runs("b")...)
		skipped := 0
		for _, run := range all {
			if run.State == jobs.Skipped && run.Cause == kernel.ByDepth {
				skipped++
			}
		}
		if len(all) != kernel.MaxDepth+2 || skipped != 1 {
			t.Errorf("%d runs, %d skipped; want %d and 1", len(all), skipped, kernel.MaxDepth+2)
		}
	})
}
