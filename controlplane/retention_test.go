package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// forgetting is a cluster whose finished runs are purged, with what they logged.
func forgetting(t *testing.T, do func(h *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		logs := memstore.NewLogs(0)
		h.archive.Dropping(logs)
		h.retain, h.logs = h.archive, logs
		h.start()
		do(h)
	})
}

// lines are how many log lines there are of a run.
func (h *fixture) lines(id jobs.ID) int {
	h.t.Helper()
	lines, err := h.logs.Read(h.ctx, jobs.DefaultTenant, id, metastore.LogPosition{}, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	return len(lines)
}

// ended counts the runs that entered a state, by the counts of the last days.
func (h *fixture) counted(key jobs.Key, state jobs.State) (n int64) {
	h.t.Helper()
	counts, err := h.store.Counts(h.ctx, metastore.CountQuery{Tenant: jobs.DefaultTenant, Job: key, From: time.Now().Add(-7 * 24 * time.Hour), To: time.Now().Add(time.Hour)})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, tally := range counts.Tallies {
		n += tally.Runs[state]
	}
	return n
}

// Finished runs are purged by age, and by number where that comes first, each job as its code or a person configures;
// those that succeeded are not counted with the others. Their results and log lines go with them, live runs stay, and
// young ones can be read in any number.
func TestS0_26RunsGoByAgeAndByNumber(t *testing.T) {
	tests.Long(t)
	forgetting(t, func(h *fixture) {
		var n atomic.Int64
		every := func(key jobs.Key, o jobs.Options, err error) jobs.Job {
			o.Key, o.Cron = key, "0 */10 * * * *"
			return jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
				n.Add(1)
				jobs.Log(ctx).Info("done")
				return errors.Join(err, jobs.Result(ctx, "so"))
			}), o)
		}
		bad := errors.New("no")
		h.worker(worker.Config{},
			every("by.age", jobs.Options{KeepFor: 2 * time.Hour}, nil),
			every("by.number", jobs.Options{KeepSucceeded: 5, KeepOthers: 1}, nil),
			every("others", jobs.Options{KeepSucceeded: 1, KeepOthers: 7}, bad),
			every("both", jobs.Options{KeepFor: 2 * time.Hour, KeepSucceeded: 5}, nil),
			every("all", jobs.Options{KeepFor: jobs.None, KeepSucceeded: jobs.None}, nil),
			every("edited", jobs.Options{}, nil))
		h.must(kernel.Edit{Key: "edited", Set: kernel.Settings{KeepSucceeded: new(3)}})
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "by.number", Delay: 30 * time.Hour})
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		first := h.runs("by.number")
		old := first[len(first)-1]
		if string(old.Result) != `"so"` || h.lines(old.ID) == 0 {
			t.Fatalf("the first run has the result %s and %d lines", old.Result, h.lines(old.ID))
		}
		time.Sleep(6 * time.Hour)
		synctest.Wait()

		const ran = 6*6 + 1
		for key, want := range map[jobs.Key]int{"by.age": 12, "by.number": 6, "others": 7, "both": 5, "all": ran, "edited": 3} { // one of by.number's lives
			if got := len(h.runs(key)); got != want {
				t.Errorf("%s: %d runs are kept, want %d", key, got, want)
			}
		}
		if _, err := h.store.Run(h.ctx, jobs.DefaultTenant, old.ID); !errors.Is(err, jobs.NotFound) || h.lines(old.ID) != 0 {
			t.Errorf("a run that has gone is answered with %v, and has %d lines", err, h.lines(old.ID))
		}
		for _, run := range h.runs("by.number") {
			if run.State == jobs.Succeeded && h.lines(run.ID) == 0 {
				t.Errorf("run %s is kept, and its lines have gone", run.ID)
			}
		}
		if n.Load() != 6*ran {
			t.Errorf("the handlers were called %d times, want %d", n.Load(), 6*ran)
		}
		if h.logged.count("finished runs purged") == 0 {
			t.Error("the purge is not logged")
		}
		if c := h.cp.Purging(); c.Total != 5*ran-12-5-7-5-3 || c.Bytes == 0 || c.Looked.IsZero() || c.At.IsZero() {
			t.Errorf("Cleaning returns %+v", c)
		}
	})
}

// unready is a store whose rows are not complete for a while after it has begun.
type unready struct {
	metastore.Retainer
	until time.Time
}

func (u unready) Retain(ctx context.Context, r metastore.Retention) (metastore.Retained, error) {
	if time.Now().Before(u.until) {
		return metastore.Retained{}, metastore.ErrNotWhole
	}
	return u.Retainer.Retain(ctx, r)
}

// A store that does not know yet what it keeps is asked again, without an error in the log and without being reported
// as looked through.
func TestStoreThatIsNotWholeForgetsLater(t *testing.T) {
	forgetting(t, func(h *fixture) {
		h.stop()
		h.retain = unready{h.archive, time.Now().Add(90 * time.Second)}
		h.start()
		time.Sleep(80 * time.Second)
		synctest.Wait()
		if c := h.cp.Purging(); !c.Looked.IsZero() || h.logged.count("could not be purged") > 0 {
			t.Errorf("before it is whole it looked at %v, and complained %d times", c.Looked, h.logged.count("could not be purged"))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if h.cp.Purging().Looked.IsZero() {
			t.Error("it never looks")
		}
	})
}

// A crowd of runs that end at once can be read by waiting clients, even if few are kept; ten minutes later the newest
// are left.
func TestS0_26WhoWaitsFindsTheRun(t *testing.T) {
	forgetting(t, func(h *fixture) {
		run := jobs.TriggeredFunc[charge](func(ctx context.Context, a charge) error { return jobs.Result(ctx, a.Customer) })
		h.worker(worker.Config{}, jobs.NewTriggered(run, jobs.Options{Key: "many", KeepSucceeded: 10}))
		var ids []jobs.ID
		for i := range 200 {
			r := h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "many", Args: fmt.Appendf(nil, `{"Customer":"c%d"}`, i)}).Run()
			ids = append(ids, r.ID)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for i, id := range ids {
			if r := h.run(id); r.State != jobs.Succeeded || string(r.Result) != fmt.Sprintf("%q", fmt.Sprint("c", i)) {
				t.Fatalf("run %d is %s with %s", i, r.State, r.Result)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := len(h.runs("many")); got != 10 {
			t.Errorf("%d are left, want 10", got)
		}
	})
}

// All of them together may take so many bytes: beyond, the oldest are purged, of any job.
func TestS0_26RunsGoByBytes(t *testing.T) {
	archive, at := memstore.NewArchive(0), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var rows []*kernel.Run
	for i := range 100 {
		rows = append(rows, &kernel.Run{Tenant: jobs.DefaultTenant, ID: kernel.DerivedID(string(rune('a' + i))), Key: jobs.Key([]string{"a", "b"}[i%2]), State: jobs.Succeeded,
			Result: make([]byte, 800), Ended: at.Add(time.Duration(i) * time.Second)})
	}
	archive.Append(rows)
	all := func(jobs.Tenant, jobs.Key) (kernel.Kept, error) { return kernel.Kept{}, nil }
	done, err := archive.Retain(t.Context(), metastore.Retention{Of: all, Bytes: 60_500})
	if err != nil || done.Dropped != 70 || done.Bytes != 60_000 {
		t.Errorf("%+v, %v: 30 runs of 2,000 bytes fit", done, err)
	}
}

// An app, and a tenant, within its share loses none for one that is not.
func TestRunsGoByShares(t *testing.T) {
	archive, at := memstore.NewArchive(0), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var rows []*kernel.Run
	for i := range 100 {
		r := &kernel.Run{Tenant: jobs.DefaultTenant, ID: kernel.DerivedID(fmt.Sprint(i)), Key: "loud", State: jobs.Skipped,
			Result: make([]byte, 800), Ended: at.Add(time.Duration(i) * time.Second)}
		switch i {
		case 0:
			r.Tenant = "acme"
		case 1:
			r.Key = "quiet"
		}
		rows = append(rows, r)
	}
	archive.Append(rows)
	app := func(_ jobs.Tenant, key jobs.Key) (kernel.Kept, error) { return kernel.Kept{App: string(key)}, nil }
	done, err := archive.Retain(t.Context(), metastore.Retention{Of: app, Bytes: 60_500})
	if err != nil || done.Dropped != 70 || done.Bytes != 60_000 {
		t.Errorf("%+v, %v: 30 runs of 2,000 bytes fit", done, err)
	}
	for i, r := range rows {
		if got, err := archive.Get(t.Context(), r.Tenant, r.ID); err != nil || (got != nil) != (i < 2 || i >= 72) {
			t.Errorf("run %d of %s/%s: %v, %v", i, r.Tenant, r.Key, got, err)
		}
	}
}

// Hourly counts stay when the runs that they count are purged.
func TestS0_31CountsStayWhenRunsGo(t *testing.T) {
	tests.Long(t)
	forgetting(t, func(h *fixture) {
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 */10 * * * *", KeepSucceeded: 2}, &n))
		time.Sleep(4*time.Hour + 15*time.Minute)
		synctest.Wait()
		if got := len(h.runs("tick")); got != 2 {
			t.Errorf("%d runs are kept, want 2", got)
		}
		if got := h.counted("tick", jobs.Succeeded); got != n.Load() || got != 6*4+1 {
			t.Errorf("by the counts %d runs succeeded, %d did", got, n.Load())
		}
		h.must(kernel.Purge{Before: time.Now()})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := len(h.runs("tick")); got != 0 {
			t.Errorf("%d runs are left", got)
		}
		if got := h.counted("tick", jobs.Succeeded); got != n.Load() {
			t.Errorf("by the counts %d runs succeeded, %d did", got, n.Load())
		}
	})
}

// A person purges runs: those of a job that ended before a time, but the last ten; of a deleted job; of all. There is a
// preview, and an audit record.
func TestS2_08CleanByHand(t *testing.T) {
	forgetting(t, func(h *fixture) {
		h.calm()
		bin := jobs.TriggeredFunc[charge](func(context.Context, charge) error { return nil })
		h.worker(worker.Config{}, jobs.NewTriggered(bin, jobs.Options{Key: "bin"}), jobs.NewTriggered(bin, jobs.Options{Key: "old"}), jobs.NewTriggered(bin, jobs.Options{Key: "stay"}))
		c := client.New(h.store, h.hub.As(clientOf), client.Config{Actor: "client:test"})
		defer c.Close()
		a := api.New(api.Config{Ops: ops.New(ops.Config{Store: h.store})})
		ask := func(body string, want int, text string) {
			t.Helper()
			r := httptest.NewRequest(http.MethodPost, "/api/v1/purge", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Carillon-Reason", "the audit has ended")
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code != want || !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: %d %s, want %d with %s", body, w.Code, w.Body, want, text)
			}
		}
		left := func(key jobs.Key, want int) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if got := len(h.runs(key)); got != want {
				t.Errorf("%d runs of %s are left, want %d", got, key, want)
			}
		}
		enqueue := func(key jobs.Key, n int) {
			for range n {
				if _, err := c.Enqueue(h.ctx, jobs.Request{Key: key}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			synctest.Wait()
		}
		enqueue("bin", 30)
		noon := time.Now()
		time.Sleep(time.Hour)
		enqueue("bin", 15)
		enqueue("stay", 4)
		enqueue("old", 3)
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "bin", Delay: 240 * time.Hour})
		time.Sleep(2 * time.Minute)

		before := `"before":"` + noon.UTC().Format(time.RFC3339Nano) + `"`
		ask(`{"job":"bin",`+before+`,"dryRun":true}`, 200, `"runs":30`)
		left("bin", 46)
		ask(`{"job":"bin",`+before+`}`, 200, `"runs":30`)
		left("bin", 16)
		ask(`{"job":"bin","keep":10}`, 200, `"runs":5`)
		left("bin", 11)
		ask(`{"keep":10}`, 422, "keep needs a job")
		ask(`{"job":"none"}`, 404, "no deleted one")
		h.must(kernel.Delete{Key: "old"})
		left("old", 3)
		ask(`{"job":"old"}`, 200, `"runs":3`)
		left("old", 0)
		left("stay", 4)
		ask(`{}`, 200, `"runs":14`)
		left("stay", 0)
		left("bin", 1)
		audits, err := h.store.Audits(h.ctx, metastore.AuditQuery{Tenant: jobs.DefaultTenant, Target: "runs of bin"})
		if err != nil || len(audits) != 2 || audits[0].Verb != "purge" || audits[0].Reason != "the audit has ended" {
			t.Errorf("on record is %+v, %v", audits, err)
		}
	})
}

// A run whose children live is purged like any other: they continue, and still name it.
func TestS2_08AParentGoesBeforeItsChildren(t *testing.T) {
	forgetting(t, func(h *fixture) {
		h.calm()
		var n atomic.Int64
		h.worker(worker.Config{}, job("child", jobs.Options{}, &n), job("parent", jobs.Options{KeepFor: time.Hour}, &n))
		parent := h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "parent"}).Run()
		child := h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "child", Parent: parent.ID, Delay: 3 * time.Hour}).Run()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if _, err := h.store.Run(h.ctx, jobs.DefaultTenant, parent.ID); !errors.Is(err, jobs.NotFound) {
			t.Errorf("the parent is answered with %v", err)
		}
		tree, _, err := ops.New(ops.Config{Store: h.store}).Tree(h.ctx, ops.Who{}, child.ID, 10)
		if err != nil || len(tree) == 0 {
			t.Errorf("the family of its child is %+v, %v", tree, err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if run := h.run(child.ID); run.State != jobs.Succeeded || run.Parent != parent.ID {
			t.Errorf("the child is %s, of %s", run.State, run.Parent)
		}
	})
}

// The page about retention is right.
func TestRetentionPage(t *testing.T) {
	tests.Long(t)
	forgetting(t, func(h *fixture) {
		var n atomic.Int64
		rows := cells(t, "retention.md", "| keepFor | keepSucceeded | it runs every | runs that are left |")
		var list []jobs.Job
		for i, row := range rows {
			set, every := jobs.Options{KeepSucceeded: jobs.None}, row[2]
			var err error
			if set.KeepFor, err = time.ParseDuration(row[0]); err != nil {
				t.Fatal(err)
			}
			if set.KeepFor == 0 {
				set.KeepFor = jobs.None
			}
			if row[1] != "0" {
				if set.KeepSucceeded, err = strconv.Atoi(row[1]); err != nil {
					t.Fatal(err)
				}
			}
			set.Cron = "0 */" + strings.TrimSuffix(every, "m") + " * * * *"
			list = append(list, job(jobs.Key(fmt.Sprint("row", i)), set, &n))
		}
		h.worker(worker.Config{}, list...)
		time.Sleep(6*time.Hour + 90*time.Second)
		synctest.Wait()
		for i, row := range rows {
			if got := fmt.Sprint(len(h.runs(jobs.Key(fmt.Sprint("row", i))))); got != row[3] {
				t.Errorf("%v: %s runs are left", row, got)
			}
		}
		if len(rows) < 5 {
			t.Errorf("the table has %d rows", len(rows))
		}
	})
}
