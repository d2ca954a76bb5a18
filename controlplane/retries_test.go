package controlplane_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// failing is a job whose attempts end as listed: a code, "" for an error without one, "ok", "panic", "final", "hang".
// Attempts beyond the list succeed. began are the times at which attempts began.
type failing struct {
	mu    sync.Mutex
	begun []time.Time
}

func (f *failing) job(o jobs.Options, ends ...string) jobs.Job {
	o.Key = "fails"
	return jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
		f.mu.Lock()
		f.begun = append(f.begun, time.Now())
		f.mu.Unlock()
		n := int(jobs.Attempt(ctx).Number)
		if n > len(ends) {
			return nil
		}
		switch end := ends[n-1]; end {
		case "ok":
			return nil
		case "":
			return errors.New("no code")
		case "panic":
			panic("oh")
		case "final":
			return jobs.NoRetry(jobs.Fail("402", errors.New("no money")))
		case "snooze":
			return jobs.Snooze(time.Minute)
		case "hang":
			<-ctx.Done()
			return ctx.Err()
		default:
			return jobs.Fail(end, errors.New("the service answered "+end))
		}
	}), o)
}

// waits are the times between the beginnings of attempts, to the second.
func (f *failing) waits() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var texts []string
	for i := 1; i < len(f.begun); i++ {
		texts = append(texts, f.begun[i].Sub(f.begun[i-1]).Round(time.Second).String())
	}
	return strings.Join(texts, " ")
}

// codes are the codes of a run's attempts that failed, as its ledger has them.
func codes(run *kernel.Run) string {
	var texts []string
	for _, m := range run.Moves {
		if m.State == jobs.Failed {
			texts = append(texts, run.CodeOf(m.Attempt))
		}
	}
	return strings.Join(texts, " ")
}

// tries runs one run of a job to its end.
func tries(t *testing.T, o jobs.Options, how []jobs.EnqueueOption, ends []string, check func(run *kernel.Run, f *failing)) {
	t.Helper()
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var f failing
		h.worker(worker.Config{}, f.job(o, ends...))
		id := h.enqueue("fails", how...)
		for minutes := 0; minutes < 60 && !h.run(id).State.Final(); minutes++ {
			time.Sleep(time.Minute)
		}
		time.Sleep(2 * time.Minute) // and nothing follows
		check(h.run(id), &f)
	})
}

// A job is tried as often and after as long as its rules define: each case is a run from its first attempt to its end.
func retried(t *testing.T, o jobs.Options, ends []string, state jobs.State, attempts uint32, waits, failures string) {
	t.Helper()
	if o.RetryJitter == "" {
		o.RetryJitter = jobs.JitterNone
	}
	tries(t, o, nil, ends, func(run *kernel.Run, f *failing) {
		t.Helper()
		if run.State != state || run.Attempt != attempts || f.waits() != waits || codes(run) != failures {
			t.Errorf("%v: it is %s after %d attempts, which waited for %q and failed with %q; want %s, %d, %q, %q", ends, run.State, run.Attempt, f.waits(), codes(run), state, attempts, waits, failures)
		}
	})
}

var always = func(code string) []string { return slices.Repeat([]string{code}, 50) }

// An array of rules; the first one that matches the code decides.
func TestS2_22(t *testing.T) {
	rules := []jobs.RetryRule{
		{Codes: []string{"502", "503"}, Attempts: 3, Delay: 10 * time.Second},
		{Codes: []string{"card_declined"}, Attempts: jobs.None},
		{Codes: []string{"*"}, Attempts: 1, Delay: time.Minute},
	}
	o := jobs.Options{RetryRules: rules}
	retried(t, o, always("503"), jobs.Terminated, 4, "10s 20s 40s", "503 503 503 503")
	retried(t, o, always("card_declined"), jobs.Terminated, 1, "", "card_declined")
	retried(t, o, always("418"), jobs.Terminated, 2, "1m0s", "418 418")
	retried(t, o, []string{"502", "503", "ok"}, jobs.Succeeded, 3, "10s 20s", "502 503")
	// A failure that no rule matches is retried by the job's own settings.
	retried(t, jobs.Options{RetryRules: rules[:2], Retries: 1, RetryDelay: 7 * time.Second}, always("418"), jobs.Terminated, 2, "7s", "418 418")
}

// One cap over all rules together.
func TestS2_23(t *testing.T) {
	rules := []jobs.RetryRule{{Codes: []string{"a"}, Attempts: 4}, {Codes: []string{"b"}, Attempts: 4}}
	retried(t, jobs.Options{RetryRules: rules, Retries: 5}, []string{"a", "a", "a", "b", "b", "b", "b"}, jobs.Terminated, 6, "1s 2s 4s 1s 2s", "a a a b b b")
	retried(t, jobs.Options{RetryRules: rules}, []string{"a", "a", "a", "b", "b", "b", "b"}, jobs.Succeeded, 8, "1s 2s 4s 1s 2s 4s 8s", "a a a b b b b")
}

// First delay, attempts and factor of a rule, with their defaults: 1 s, 2, 2.
func TestS2_38(t *testing.T) {
	any := []string{"*"}
	retried(t, jobs.Options{RetryRules: []jobs.RetryRule{{Codes: any}}}, always("x"), jobs.Terminated, 3, "1s 2s", "x x x")
	retried(t, jobs.Options{RetryRules: []jobs.RetryRule{{Codes: any, Attempts: 3, Delay: 9 * time.Second, Factor: 3}}}, always("x"), jobs.Terminated, 4, "9s 27s 1m21s", "x x x x")
	retried(t, jobs.Options{RetryRules: []jobs.RetryRule{{Codes: any, Attempts: 4, Delay: 10 * time.Second, Factor: 1}}}, always("x"), jobs.Terminated, 5, "10s 10s 10s 10s", "x x x x x")
	retried(t, jobs.Options{RetryRules: []jobs.RetryRule{{Codes: any, Attempts: 4, Delay: 10 * time.Second, MaxDelay: 25 * time.Second}}}, always("x"), jobs.Terminated, 5, "10s 20s 25s 25s", "x x x x x")
	retried(t, jobs.Options{RetryRules: []jobs.RetryRule{{Codes: any, Attempts: 3, Delay: jobs.None}}}, always("x"), jobs.Terminated, 4, "0s 0s 0s", "x x x x")
}

// Codes without a user's code: of a timeout, of a panic, of any other error.
func TestS2_39(t *testing.T) {
	one := func(code string) jobs.Options {
		return jobs.Options{RetryRules: []jobs.RetryRule{{Codes: []string{code}, Attempts: 1, Delay: 5 * time.Second}}, Timeout: time.Minute}
	}
	retried(t, one(kernel.CodeTimeout), always("hang"), jobs.Terminated, 2, "1m5s", "timeout timeout")
	retried(t, one(kernel.CodePanic), always("panic"), jobs.Terminated, 2, "5s", "panic panic")
	retried(t, one(kernel.CodeError), always(""), jobs.Terminated, 2, "5s", " ")
	retried(t, one("404"), always("404"), jobs.Terminated, 2, "5s", "404 404")
	for _, end := range []string{"hang", "panic", "", "404"} { // a rule for another code leaves them alone
		tries(t, one("500"), nil, always(end), func(run *kernel.Run, _ *failing) {
			if run.State != jobs.Terminated || run.Attempt != 1 {
				t.Errorf("%q is %s after %d attempts", end, run.State, run.Attempt)
			}
		})
	}
	// A handler's NoRetry is final, with any rules.
	retried(t, one("402"), always("final"), jobs.Terminated, 1, "", "402")
}

// Different errors of one run use different rules, each with its own count and delay, and never more than the cap.
func TestS2_40(t *testing.T) {
	o := jobs.Options{Retries: 6, RetryRules: []jobs.RetryRule{
		{Codes: []string{"502"}, Attempts: 2, Delay: 10 * time.Second}, {Codes: []string{"429"}, Attempts: 10, Delay: time.Minute, Factor: 1},
	}}
	retried(t, o, []string{"502", "429", "502", "429", "ok"}, jobs.Succeeded, 5, "10s 1m0s 20s 1m0s", "502 429 502 429")
	retried(t, o, []string{"502", "429", "502", "502", "ok"}, jobs.Terminated, 4, "10s 1m0s 20s", "502 429 502 502")
	retried(t, o, always("429"), jobs.Terminated, 7, "1m0s 1m0s 1m0s 1m0s 1m0s 1m0s", "429 429 429 429 429 429 429")
	// Snoozing in between uses up nothing of any rule.
	retried(t, o, []string{"502", "snooze", "502", "snooze", "ok"}, jobs.Succeeded, 5, "10s 1m0s 20s 1m0s", "502  502 ")
}

// Given up at once, or tried again up to a number; the run records why, attempt by attempt.
func TestS0_25(t *testing.T) {
	tries(t, jobs.Options{}, nil, always("503"), func(run *kernel.Run, _ *failing) {
		if run.State != jobs.Terminated || run.Attempt != 1 || run.Error != "the service answered 503" || run.Code() != "503" {
			t.Errorf("given up: %s after %d attempts, %q, code %q", run.State, run.Attempt, run.Error, run.Code())
		}
	})
	tries(t, jobs.Options{Retries: 5}, nil, always("503"), func(run *kernel.Run, _ *failing) {
		n := 0
		for _, m := range run.Moves {
			if m.State == jobs.Failed && m.Text == "the service answered 503" && m.Cause == kernel.ByError {
				n++
			}
		}
		if run.State != jobs.Terminated || run.Attempt != 6 || n != 6 {
			t.Errorf("tried again: %s after %d attempts, of which %d have a reason", run.State, run.Attempt, n)
		}
	})
}

// cells are the cells of the table of a page that begins with a head.
func cells(t *testing.T, page, head string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "\n"+head+"\n")
	if !ok {
		t.Fatalf("%s has no table %s", page, head)
	}
	for line := range strings.SplitSeq(table, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.ReplaceAll(strings.TrimSpace(row[i]), "`", "")
		}
		if row[0] == "" || !strings.HasPrefix(row[0], "---") {
			rows = append(rows, row)
		}
	}
	return rows
}

// The page about limits is right.
func TestS2_40AsThePageStates(t *testing.T) {
	rows := cells(t, "limits.md", "| rules | retries | its attempts end with | waits | it is |")
	if len(rows) < 6 {
		t.Errorf("the page has %d runs", len(rows))
	}
	for _, row := range rows {
		rules, err := kernel.ParseRules(row[0])
		if err != nil {
			t.Fatal(err)
		}
		for i := range rules { // Options read a zero as a default
			if rules[i].Attempts == 0 {
				rules[i].Attempts = jobs.None
			}
			if rules[i].Delay == 0 {
				rules[i].Delay = jobs.None
			}
		}
		retries, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		ends := strings.Fields(strings.ReplaceAll(row[2], "timeout", "hang"))
		tries(t, jobs.Options{RetryRules: rules, Retries: retries, RetryJitter: jobs.JitterNone, Timeout: time.Minute}, nil, slices.Concat(ends, ends[len(ends)-1:]), func(run *kernel.Run, f *failing) {
			if run.State.String() != row[4] || f.waits() != row[3] || int(run.Attempt) != len(ends) {
				t.Errorf("%v: it is %s after %d attempts, which waited for %q", row, run.State, run.Attempt, f.waits())
			}
		})
	}
}

func TestS3_20AsThePageStates(t *testing.T) {
	tests.Long(t)
	rows := cells(t, "limits.md", "| overlap | the new run | final states |")
	if len(rows) != 4 {
		t.Errorf("the page has %d ways", len(rows))
	}
	for _, row := range rows {
		inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
			var j journal
			h.worker(worker.Config{Slots: 8}, j.work("sync", time.Hour, true, jobs.Options{MaxConcurrency: 1, Overlap: jobs.Overlap(row[0]), Timeout: 2 * time.Hour}))
			for range 4 {
				h.enqueue("sync")
				time.Sleep(10 * time.Minute)
			}
			time.Sleep(3*time.Hour + 30*time.Minute)
			got := regexp.MustCompile(`\([a-z ]+\)`).ReplaceAllString(h.fates("sync"), "")
			if got != strings.ReplaceAll(row[2], ",", "") {
				t.Errorf("%s: %s", row[0], got)
			}
		})
	}
	for _, row := range cells(t, "limits.md", "| limit | means |") {
		if l, err := kernel.ParseLimits(row[0]); err != nil || len(l) != 1 || kernel.LimitsText(l) != row[0] || l[0].Name == "" {
			t.Errorf("%s is read as %+v, %v", row[0], l, err)
		}
	}
}

// The number of retries of a job applies unless the request for a run overrides it, also with none.
func TestS3_19(t *testing.T) {
	for _, c := range []struct {
		of   jobs.Options
		how  []jobs.EnqueueOption
		want uint32
	}{
		{jobs.Options{Retries: 2}, nil, 3},
		{jobs.Options{Retries: 2}, []jobs.EnqueueOption{jobs.WithRetries(4)}, 5},
		{jobs.Options{Retries: 2}, []jobs.EnqueueOption{jobs.WithRetries(0)}, 1},
		{jobs.Options{RetryRules: []jobs.RetryRule{{Codes: []string{"*"}, Attempts: 6}}}, nil, 7},
		{jobs.Options{RetryRules: []jobs.RetryRule{{Codes: []string{"*"}, Attempts: 6}}}, []jobs.EnqueueOption{jobs.WithRetries(3)}, 4},
		{jobs.Options{RetryRules: []jobs.RetryRule{{Codes: []string{"*"}, Attempts: 6}}}, []jobs.EnqueueOption{jobs.WithRetries(0)}, 1},
	} {
		tries(t, c.of, c.how, always("x"), func(run *kernel.Run, _ *failing) {
			if run.State != jobs.Terminated || run.Attempt != c.want {
				t.Errorf("%d retries, %d rules and %d options for the run: %s after %d attempts, want %d", c.of.Retries, len(c.of.RetryRules), len(c.how), run.State, run.Attempt, c.want)
			}
		})
	}
}

// No retries by default; then at once, and within the limit: the retry keeps its slot, newcomers are skipped.
func TestS4_07(t *testing.T) {
	retried(t, jobs.Options{}, always("x"), jobs.Terminated, 1, "", "x")
	retried(t, jobs.Options{Retries: 3}, always("x"), jobs.Terminated, 4, "1s 2s 4s", "x x x x")
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		var j journal
		h.worker(worker.Config{Slots: 8}, jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
			j.start(ctx)
			defer j.end(ctx)
			time.Sleep(time.Minute)
			if jobs.Attempt(ctx).Number < 3 {
				return errors.New("no")
			}
			return nil
		}), jobs.Options{Key: "fails", Retries: 2, MaxConcurrency: 1, Overlap: jobs.OverlapSkip}))
		for range 5 { // while attempts 1, 1, 2, 3 run, and after all of them
			h.enqueue("fails")
			time.Sleep(50 * time.Second)
		}
		time.Sleep(time.Hour)
		if h.fate("fails", "Succeeded Skipped(overlap) Skipped(overlap) Skipped(overlap) Succeeded"); j.peak() != 1 || j.starts() != 6 {
			t.Errorf("%d attempts, %d at a time", j.starts(), j.peak())
		}
	})
	// A retry that waits frees its slot, and goes before all others when it is due.
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		h.worker(worker.Config{Slots: 8}, jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
			j.start(ctx)
			defer j.end(ctx)
			time.Sleep(time.Minute)
			if j.starts() == 1 {
				return errors.New("no")
			}
			return nil
		}), jobs.Options{Key: "fails", Retries: 1, RetryDelay: 90 * time.Second, RetryJitter: jobs.JitterNone, MaxConcurrency: 1, Overlap: jobs.OverlapQueue}))
		first := h.enqueue("fails")
		for range 4 {
			h.enqueue("fails")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		// It failed at 1 m, came back at 2 m 30 s while the third ran, and went before the fourth and the fifth.
		if len(j.started) != 6 || j.started[3].Run != first || j.peak() != 1 {
			t.Errorf("attempts are %+v, %d at a time", j.started, j.peak())
		}
	})
}

// An outage that fails many runs at once is followed by no storm: retries come as often as the job's budget allows, and
// all jobs together as often as the tenant's.
func TestS2_38NoStormAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		h.must(kernel.Configure{RetryBudget: &jobs.Rate{Max: 5, Per: time.Second}})
		var mu sync.Mutex
		second := map[int64]int{}
		again := func(key jobs.Key) jobs.Job {
			return jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
				if jobs.Attempt(ctx).Number == 1 {
					return errors.New("the database is away")
				}
				mu.Lock()
				defer mu.Unlock()
				second[time.Now().Unix()]++
				return nil
			}), jobs.Options{Key: key, Retries: 3, RetryBudget: jobs.Rate{Max: 3, Per: time.Second}})
		}
		h.worker(worker.Config{Slots: 200}, again("a"), again("b"))
		h.flood("a", 60)
		h.flood("b", 60)
		time.Sleep(time.Hour)
		h.all("a", 60, jobs.Succeeded)
		h.all("b", 60, jobs.Succeeded)
		most, n := 0, 0
		synctest.Wait()
		for _, k := range second {
			most, n = max(most, k), n+k
		}
		// A full bucket at once, and then as many as flow into it.
		if n != 120 || most > 5+5 || len(second) < 120/5-1 {
			t.Errorf("%d retries, %d in one second at most, over %d seconds", n, most, len(second))
		}
	})
}

// all checks that a job has so many runs, all in a state.
func (h *fixture) all(key jobs.Key, n int, state jobs.State) {
	h.t.Helper()
	runs := h.runs(key)
	if len(runs) != n {
		h.t.Errorf("%s has %d runs, want %d", key, len(runs), n)
	}
	for _, run := range runs {
		if run.State != state {
			h.t.Errorf("run %s is %s", run.ID, run.State)
		}
	}
}

// So many runs in a row that fail for good pause the job; a resume begins to count anew.
func TestS0_25PausesItselfAfterFailuresInARow(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		var good atomic.Bool
		p := called(h, kernel.AlarmRule{Name: "tired", Kind: kernel.AlarmPaused})
		h.worker(worker.Config{}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error {
			if good.Load() {
				return nil
			}
			return errors.New("disk full")
		}), jobs.Options{Key: "sync", Cron: "0 */10 * * * *", PauseAfter: 3}))
		time.Sleep(100*time.Minute + aWhile)
		h.fate("sync", "Terminated(error) Terminated(error) Terminated(error)")
		d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "sync")
		if err != nil || d.Paused == nil || !strings.Contains(d.Paused.Why(), "3 consecutive runs failed") || d.Paused.Reason != "disk full" {
			t.Fatalf("it is paused by %+v, %v", d.Paused, err)
		}
		if missed := h.ledger("sync"); len(missed) != 1 || missed[0].Reason != kernel.MissedPaused || missed[0].Count != 7 {
			t.Errorf("missed are %+v", missed)
		}
		good.Store(true)
		h.must(kernel.Resume{Key: "sync"})
		time.Sleep(20 * time.Minute)
		good.Store(false)
		time.Sleep(20 * time.Minute)
		h.fate("sync", "Terminated(error) Terminated(error) Terminated(error) Succeeded Succeeded Terminated(error) Terminated(error)")
		p.want(t, "when it had paused itself, and was resumed", "Job sync paused itself", "Resolved: Job sync paused itself")
	})
}

// No run stays Processing for ever: heartbeats decide that its worker is gone, with any timeout.
func TestRiver1258(t *testing.T) {
	tests.Long(t)
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		o := jobs.Options{Timeout: jobs.None}
		dead := h.cabled(worker.Config{Name: "dead", Slots: 50}, j.work("long", 100*time.Hour, true, o))
		h.flood("long", 50)
		time.Sleep(time.Minute)
		if j.starts() != 50 {
			t.Fatalf("%d began", j.starts())
		}
		dead.cut.Store(true)
		time.Sleep(time.Minute)
		for _, run := range h.runs("long") {
			if run.State != jobs.Failed || run.Cause != kernel.ByLoss {
				t.Fatalf("run %s is %s by %s a minute after its worker", run.ID, run.State, run.Cause)
			}
		}
		h.worker(worker.Config{Name: "alive", Slots: 50}, j.work("long", time.Hour, true, o))
		time.Sleep(2 * time.Hour)
		h.all("long", 50, jobs.Succeeded)
	})
}

func TestAsynq1144(t *testing.T) { TestRiver1258(t) }

// A lost run given to another worker never overwrites a run that has just ended, and a late result from the first
// worker is ignored.
func TestRiver1302(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		w := h.cabled(worker.Config{Name: "slow"}, j.work("long", time.Minute, false, jobs.Options{}))
		id := h.enqueue("long")
		time.Sleep(time.Second)
		run := h.run(id)
		time.Sleep(2 * time.Minute)
		done := h.run(id)
		if done.State != jobs.Succeeded {
			t.Fatalf("it is %s", done.State)
		}
		h.apply(kernel.Expire{ID: id, Attempt: run.Attempt, Cause: kernel.ByLoss})
		if now := h.run(id); now.State != jobs.Succeeded || len(now.Moves) != len(done.Moves) {
			t.Errorf("a rescue that came late made it %s", now.State)
		}
		second := h.enqueue("long")
		time.Sleep(time.Second)
		w.cut.Store(true)
		time.Sleep(50 * time.Second)
		h.worker(worker.Config{Name: "other"}, j.work("long", 5*time.Minute, false, jobs.Options{}))
		w.cut.Store(false)
		time.Sleep(time.Minute) // the first handler has returned by now
		if now := h.run(second); now.State != jobs.Processing || now.Attempt != 2 {
			t.Errorf("after the first handler has returned it is %s, attempt %d", now.State, now.Attempt)
		}
		late := h.apply(kernel.Finish{ID: second, Worker: run.Worker, Attempt: 1, Outcome: kernel.OutcomeSuccess})
		if now := h.run(second); !errors.Is(late.Err, jobs.Stale) || now.State != jobs.Processing {
			t.Errorf("a result that came late was answered with %v, and the run is %s", late.Err, now.State)
		}
		time.Sleep(10 * time.Minute)
		if now := h.run(second); now.State != jobs.Succeeded || now.Attempt != 2 {
			t.Errorf("it is %s, attempt %d", now.State, now.Attempt)
		}
	})
}
