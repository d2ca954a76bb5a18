package httpjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Notifications are runs of a system job: durable, visible as children of the run that they are about, and retried
// until they are delivered. Only the worker that has a run starts them ([kernel.Notify]), and the store writes which
// run it is.

// Codes of a notification that was not delivered: for the retries that follow soon, and for all others.
const (
	codeUndelivered = "undelivered"
	codeWaiting     = "undelivered_long"
)

const (
	soonTries = 3 // retries, every 20 s
	lateTries = 125
)

// Jobs returns what a worker of HTTP jobs serves by name.
func (r *Runner) Jobs() []jobs.Job {
	return []jobs.Job{jobs.NewTriggered(jobs.TriggeredFunc[notification](r.deliver), jobs.Options{
		Key: kernel.NotifyKey(r.cfg.App), Name: "Notifications", Description: "Sends notifications about runs of HTTP jobs, until they are delivered.",
		Timeout: 2 * r.cfg.CallTimeout, RetryJitter: jobs.JitterNone, RetryDelayMax: time.Hour,
		RetryRules: []jobs.RetryRule{
			{Codes: []string{codeUndelivered}, Attempts: soonTries, Delay: 20 * time.Second, Factor: 1},
			{Codes: []string{codeWaiting}, Attempts: lateTries, Delay: time.Minute, Factor: 2, MaxDelay: time.Hour},
		},
	})}
}

// notification is the argument of a notification's run: a call with its values, but without its secrets.
type notification struct {
	// What the store wrote.
	Run       jobs.ID  `json:"run"` // that it is about
	Job       jobs.Key `json:"job"`
	Execution uint32   `json:"execution"` // the number of the run

	Body note `json:"body"`
}

// note is the part written by the worker that had the run.
type note struct {
	State     string          `json:"state"`
	Call      json.RawMessage `json:"call"` // which of its job's it is
	Notice    json.RawMessage `json:"notice"`
	Requests  int             `json:"requests"` // that the attempt had made
	Named     json.RawMessage `json:"named,omitempty"`
	Responses json.RawMessage `json:"responses,omitempty"`
	Args      json.RawMessage `json:"args,omitempty"`
	Final     bool            `json:"final,omitempty"` // only if the run ends so
}

// notify starts the notifications for a state. A failure is only logged: the run does not depend on them.
func (w *work) notify(ctx context.Context, state string, status int, r httpspec.Report) {
	at, final := jobs.Attempt(ctx), state == httpspec.StatusFinalFailed || state == httpspec.StatusFinalSucceed
	for i, to := range w.plan.Notification {
		w.notified++
		if to.StateEquals != "" && to.StateEquals != state && (final || to.StateEquals != r.Status) {
			continue
		}
		n := note{State: state, Call: asJSON(to.Call), Notice: asJSON(newNotice(status, r, time.Now())), Requests: w.calls, Final: final}
		w.lend(&n, w.plan.Notify[i])
		k := kernel.Notify{Run: at.Run, App: w.cfg.App, Worker: at.Worker, Attempt: at.Number, N: uint32(w.notified), Body: asJSON(n)}
		if k.Check() != nil { // too large, or nested too deeply: the state alone is still sent
			jobs.Log(ctx).Warn("a notification is sent without the data of responses", "notification", i, "state", state, "bytes", len(k.Body))
			bare := r
			bare.Data = nil
			n.Notice, n.Named, n.Responses, n.Args = asJSON(newNotice(status, bare, time.Now())), nil, nil, nil
			k.Body = asJSON(n)
		}
		e := kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: at.Tenant, Actor: "worker:" + at.Worker, Command: k}
		if err := w.store.Apply(ctx, []kernel.Envelope{e})[0].Err; err != nil {
			jobs.Log(ctx).Warn("a notification cannot be sent", "notification", i, "state", state, "err", err.Error())
		}
	}
}

// lend gives a notification the values that its call needs.
func (w *work) lend(n *note, t *httpspec.Template) {
	named := map[string]any{}
	for _, name := range t.Named() {
		if v, ok := w.state.Named[name]; ok {
			named[name] = v
		}
	}
	if len(named) > 0 {
		n.Named = asJSON(named)
	}
	if !t.Paths() {
		return
	}
	if len(w.state.Responses) > 0 {
		n.Responses = asJSON(w.state.Responses)
	}
	if len(w.args) > 0 {
		n.Args = asJSON(w.args)
	}
}

const (
	lookEvery = 100 * time.Millisecond
	lookMost  = 5 * time.Second
)

// ends waits until the run that a final notification is about has ended, and reports whether it ended in the notified
// state: another attempt may have followed.
func (r *Runner) ends(ctx context.Context, tenant jobs.Tenant, n *notification) (bool, error) {
	for begun := time.Now(); ; {
		run, err := r.store.Run(ctx, tenant, n.Run)
		switch {
		case jobs.CodeOf(err) == jobs.NotFound && err != nil:
			return false, jobs.NoRetry(errors.New("the run of this notification is purged"))
		case err != nil:
			return false, err
		case run.State.Final():
			return (run.State == jobs.Succeeded) == (n.Body.State == httpspec.StatusFinalSucceed), nil
		case time.Since(begun) > lookMost:
			return false, jobs.Snooze(lookMost)
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}

// meant returns the call of a notification as the job defines it now: a worker chooses what a notification contains,
// but only the job chooses its recipients.
func (r *Runner) meant(ctx context.Context, tenant jobs.Tenant, n *notification) (*httpspec.Plan, *httpspec.Template, error) {
	d, err := r.store.Definition(ctx, tenant, n.Job)
	switch {
	case err != nil && jobs.CodeOf(err) == jobs.NotFound:
		return nil, nil, jobs.NoRetry(fmt.Errorf("job %.200s of this notification is deleted", n.Job))
	case err != nil:
		return nil, nil, err
	}
	none := jobs.NoRetry(fmt.Errorf("job %.200s does not define this notification (any more)", n.Job))
	if kernel.NoWork(d.Policy.HTTP) {
		return nil, nil, none
	}
	plan, err := httpspec.Parse(d.Policy.HTTP)
	if err != nil {
		return nil, nil, jobs.NoRetry(err)
	}
	for i, to := range plan.Notification {
		if reflect.DeepEqual(parsed(asJSON(to.Call)), parsed(n.Body.Call)) {
			return plan, plan.Notify[i], nil
		}
	}
	return nil, nil, none
}

// deliver makes the call of a notification.
func (r *Runner) deliver(ctx context.Context, n notification) error {
	at := jobs.Attempt(ctx)
	if n.Body.Final {
		if so, err := r.ends(ctx, at.Tenant, &n); err != nil || !so {
			if err == nil {
				jobs.Log(ctx).Info("the run did not end in the notified state: nothing is sent")
			}
			return err
		}
	}
	plan, call, err := r.meant(ctx, at.Tenant, &n)
	if err != nil {
		return err
	}
	v := httpspec.Values{Variables: r.cfg.Variables, Secrets: r.cfg.Secrets, Lenient: true, System: map[string]any{
		httpspec.JobID: string(n.Job), httpspec.ExecuteNumber: n.Execution, httpspec.RequestCounts: n.Body.Requests, httpspec.NotifyBody: parsed(n.Body.Notice),
		httpspec.FeedbackURL: "", httpspec.InnerFeedbackURL: ""}} // recipients of notifications do not call back
	v.Named = map[string]any{}
	named, _ := parsed(n.Body.Named).(map[string]any)
	for _, name := range call.Named() { // null for a response that the run never got
		v.Named[name] = named[name]
	}
	v.Args, _ = parsed(n.Body.Args).(map[string]any)
	v.Responses, _ = parsed(n.Body.Responses).([]any)
	a, err := r.send(ctx, call, v, map[string]string{"Idempotency-Key": at.Run.String()}, "notification", httpspec.NewMask(plan.Hidden(r.cfg.Secrets)...))
	if err == nil && a.Status >= 300 {
		err = fmt.Errorf("the answer was %d: %.300s", a.Status, a.Body)
	}
	if err == nil || outcome.IsFinal(err) || outcome.CodeOf(err) == CodeCircuitOpen {
		return err
	}
	code := codeUndelivered
	if at.Number > soonTries {
		code = codeWaiting
	}
	return jobs.Fail(code, err)
}
