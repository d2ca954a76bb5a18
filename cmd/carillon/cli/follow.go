package cli

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// How a run is polled: often at first, then less so. A scheduler that is unavailable for a while (a restart, an
// election) does not end the wait.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
	patience  = time.Minute
	explain   = 3 * time.Second        // how long a run may wait before the reason is printed
	lateLines = 600 * time.Millisecond // more than twice a worker's log batch interval
)

// await waits until a run is final, optionally printing its log lines, then shows it; the error has the exit code.
func (a *asker) await(ctx context.Context, id string, w waiting) error {
	waiting := ctx
	if w.limit > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, w.limit)
		defer cancel()
	}
	log := tail{asker: a, run: id}
	r, got, err := a.untilFinal(waiting, id, func() error {
		if !w.follow || !a.human() {
			return nil
		}
		return log.more(waiting)
	})
	if err == nil && w.follow && a.human() {
		err = log.rest(waiting)
	}
	switch {
	case ctx.Err() != nil:
		a.remark("run %s continues; carillon runs follow %s", id, id)
		return ctx.Err()
	case waiting.Err() != nil:
		return &Exit{Code: TimedOut, Text: "run " + id + " is not finished after " + w.most + "; it continues"}
	case err != nil:
		return err
	}
	if err := a.show(runView(&r, got.raw, func(p *page) { endLine(p, &r) })); err != nil {
		return err
	}
	return endOf(r.State)
}

// endLine prints how a run ended.
func endLine(p *page, r *api.Run) {
	text := p.state(r.State)
	if r.Started != nil {
		text += " after " + lasted(p, r)
	}
	if r.Attempt > 1 {
		text += " and " + strconv.Itoa(int(r.Attempt)) + " attempts"
	}
	switch {
	case r.Error != "":
		text += ": " + clean(r.Error)
	case r.Cause != "" && r.State != jobs.Succeeded.String():
		text += ": " + r.Cause
		if n := len(r.Moves); n > 0 && r.State == jobs.Cancelled.String() {
			last := r.Moves[n-1]
			text += yes(last.By != "", ", by "+clean(last.By)) + yes(last.Text != "", ": "+clean(last.Text))
		}
	case len(r.Result) > 0:
		text += ": " + compact(r.Result)
	}
	p.line("%s", text)
}

// untilFinal polls a run until it is final, and calls look after each poll.
func (a *asker) untilFinal(ctx context.Context, id string, look func() error) (r api.Run, got answer, err error) {
	pause, silent, begun := firstLook, time.Time{}, a.Now()
	for {
		r, got, err = a.run(ctx, id)
		if err == nil && r.State == jobs.Enqueued.String() && !begun.IsZero() && a.Now().Sub(begun) > explain {
			begun = time.Time{}
			a.explain(ctx, &r)
		}
		ended := err == nil && final(r.State) // read before the lines, so that none is missed
		if err == nil {
			err = look()
		}
		switch {
		case ended && err == nil:
			return r, got, nil
		case err == nil:
			silent = time.Time{}
		case ctx.Err() != nil || !errors.Is(err, jobs.Unavailable):
			return r, got, err
		case silent.IsZero():
			silent = a.Now()
			a.remark("%v; trying again for %v", err, patience)
		case a.Now().Sub(silent) > patience:
			return r, got, err
		}
		select {
		case <-ctx.Done():
			return r, got, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(lastLook, pause*3/2)
	}
}

// explain prints why a run has not started, if that is known.
func (a *asker) explain(ctx context.Context, r *api.Run) {
	if r.Waits != "" {
		a.remark("the run waits for a slot: other runs hold all of them")
		return
	}
	got, err := a.link.get(ctx, "/workers", nil)
	var all struct{ Items []api.Worker }
	if err != nil || got.into(&all) != nil {
		return // only a hint is lost
	}
	for _, w := range all.Items {
		if _, serves := w.Jobs[r.Job]; serves {
			return
		}
	}
	a.remark("the run waits for a worker that serves %s: none is online", r.Job)
}

func final(state string) bool {
	s, err := kernel.ParseState(state)
	return err == nil && s.Final()
}

// tail reads the log of a run page by page.
type tail struct {
	*asker
	run      string
	attempt  uint32
	sequence uint64
}

const linesAtOnce = 1000

// more prints new lines.
func (t *tail) more(ctx context.Context) error {
	for {
		raw, lines, err := t.next(ctx)
		if err != nil {
			return err
		}
		if err := t.print(raw, lines); err != nil || len(lines) < linesAtOnce {
			return err
		}
	}
}

// rest prints the last lines of a finished run: workers send lines in batches, so some arrive after its end.
func (t *tail) rest(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lateLines):
	}
	return t.more(ctx)
}

func (t *tail) next(ctx context.Context) (all many, lines []api.LogLine, err error) {
	q := url.Values{"limit": {strconv.Itoa(linesAtOnce)}, "attempt": {strconv.Itoa(int(t.attempt))}, "sequence": {strconv.FormatUint(t.sequence, 10)}}
	got, err := t.link.get(ctx, "/runs/"+t.run+"/log", q)
	if err != nil {
		return all, nil, err
	}
	if err = got.into(&all); err == nil {
		lines, err = decoded[api.LogLine](all.Items)
	}
	return all, lines, err
}

// print prints lines, with -o json one object each.
func (t *tail) print(all many, lines []api.LogLine) error {
	for i, l := range lines {
		retried := l.Attempt != t.attempt && (t.attempt != 0 || l.Attempt > 1)
		t.attempt, t.sequence = l.Attempt, l.Sequence
		v := view{raw: all.Items[i], text: func(p *page) {
			if retried {
				p.line("%s", p.paint(faint, "attempt "+strconv.Itoa(int(l.Attempt))))
			}
			p.line("%s %s %s", p.paint(faint, l.At.Local().Format("15:04:05.000")), p.state(l.Level), clean(l.Text))
		}}
		if err := t.show(v); err != nil {
			return err
		}
	}
	return nil
}

func (a *asker) runsLog() *cobra.Command {
	var follow bool
	c := &cobra.Command{Use: "log <run>", Short: "Print a run's log, oldest first", Args: one("the ID of a run, or the key of a job"),
		Long:              "Print a run's log, oldest first. " + someRunHelp + "\nWith -o json each line is one object.",
		Example:           lines("carillon runs log demo.report", "carillon runs log demo.report --follow"),
		ValidArgsFunction: a.completeRuns(false),
		RunE: a.does(func(ctx context.Context, args []string) error {
			id, err := a.someRun(ctx, args[0])
			if err != nil {
				return err
			}
			log := tail{asker: a, run: id}
			if !follow {
				return log.more(ctx)
			}
			if _, _, err = a.untilFinal(ctx, id, func() error { return log.more(ctx) }); err != nil {
				return err
			}
			return log.rest(ctx)
		})}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "follow until the run is final")
	return c
}

func (a *asker) runsFollow() *cobra.Command {
	w := waiting{follow: true}
	c := &cobra.Command{Use: "follow <run>", Short: "Follow a run's log until it is final", Args: one("the ID of a run, or the key of a job"),
		Long:              "Follow a run's log until it is final. The exit code is that of the run.\n" + someRunHelp,
		Example:           lines("carillon runs follow demo.report", "carillon runs follow demo.report --wait-timeout 5m"),
		ValidArgsFunction: a.completeRuns(false), RunE: a.waits(&w)}
	w.addLimit(c)
	return c
}

func (a *asker) runsWait() *cobra.Command {
	w := waiting{wait: true}
	c := &cobra.Command{Use: "wait <run>", Short: "Wait for a run", Args: one("the ID of a run, or the key of a job"),
		Long:              "Wait until a run is final. Exit codes: 0 succeeded, 10 failed, 11 cancelled, 12 skipped,\n124 --wait-timeout expired. " + someRunHelp,
		Example:           lines("carillon runs wait demo.report --wait-timeout 5m", "carillon runs wait demo.report -o json"),
		ValidArgsFunction: a.completeRuns(false), RunE: a.waits(&w)}
	w.addLimit(c)
	return c
}

func (a *asker) waits(w *waiting) func(*cobra.Command, []string) error {
	return a.does(func(ctx context.Context, args []string) error {
		if err := w.check(); err != nil {
			return err
		}
		id, err := a.someRun(ctx, args[0])
		if err != nil {
			return err
		}
		return a.await(ctx, id, *w)
	})
}
