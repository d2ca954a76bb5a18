package httpjob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Notifications are runs of a job of their own: durable, visible as children of the run that they tell of, and tried until
// they are delivered.

// NotifyKey is the job that delivers notifications.
const NotifyKey = "carillon.notify"

// Codes that a notification fails with that was not taken: for the tries that follow soon, and for all others.
const (
	codeUndelivered = "undelivered"
	codeWaiting     = "undelivered_long"
)

const (
	soonTries = 3 // retries, every 20 s
	lateTries = 125
)

// Jobs are what a worker of HTTP jobs serves by name.
func (r *Runner) Jobs() []jobs.Job {
	return []jobs.Job{jobs.NewTriggered(jobs.TriggeredFunc[note](r.deliver), jobs.Options{
		Key: NotifyKey, Name: "Notifications", Description: "Tells others of runs of HTTP jobs, until they have taken it.",
		Timeout: 2 * CallTimeout, RetryJitter: jobs.JitterNone, RetryDelayMax: time.Hour,
		RetryRules: []jobs.RetryRule{
			{Codes: []string{codeUndelivered}, Attempts: soonTries, Delay: 20 * time.Second, Factor: 1},
			{Codes: []string{codeWaiting}, Attempts: lateTries, Delay: time.Minute, Factor: 2, MaxDelay: time.Hour},
		},
	})}
}

// note is a notification as its run has it: a call with its values, but without its secrets.
type note struct {
	Job       jobs.Key        `json:"job"`
	State     string          `json:"state"`
	Call      json.RawMessage `json:"call"` // which of its job's it is
	System    map[string]any  `json:"system"`
	Named     map[string]any  `json:"named,omitempty"`
	Responses []any           `json:"responses,omitempty"`
	Args      map[string]any  `json:"args,omitempty"`
	Run       jobs.ID         `json:"run"`
	Final     bool            `json:"final,omitempty"` // only if the run ends so
}

// toldOnce is for how long the same words of the same attempt are told once.
const toldOnce = time.Hour

// tell sends the notifications that are for a state. What cannot be sent is logged: the run is not about them.
func (w *work) tell(ctx context.Context, word string, status int, r httpspec.Report) {
	at, final := jobs.Attempt(ctx), word == httpspec.StatusFinalFailed || word == httpspec.StatusFinalSucceed
	for i, to := range w.plan.Notification {
		w.told++
		if to.StateEquals != "" && to.StateEquals != word && (final || to.StateEquals != r.Status) {
			continue
		}
		v := w.values(ctx)
		v.System[httpspec.FeedbackURL], v.System[httpspec.InnerFeedbackURL] = "", "" // who is told is not who calls back
		v.System[httpspec.NotifyBody] = newNotice(status, r, time.Now()).value()
		n := note{Job: at.Key, State: word, Call: asJSON(to.Call), System: v.System, Named: v.Named, Responses: v.Responses,
			Args: v.Args, Run: at.Run, Final: final}
		args, err := json.Marshal(n)
		if err == nil {
			// The same words of the same attempt are one run, however often they are sent.
			once := strings.Join([]string{at.Run.String(), strconv.FormatUint(uint64(at.Number), 10), strconv.Itoa(w.told)}, "/")
			k := jobs.Create{ID: jobs.NewID(time.Now()), Key: NotifyKey, Args: args, Origin: jobs.FromParent, Parent: at.Run, Unique: once, UniqueFor: toldOnce}
			e := jobs.Envelope{ID: jobs.NewID(time.Now()), Tenant: at.Tenant, Actor: "worker:" + at.Worker, Command: k}
			err = w.store.Apply(ctx, []jobs.Envelope{e})[0].Err
		}
		if err != nil {
			jobs.Log(ctx).Warn("a notification cannot be sent", "notification", i, "state", word, "err", err.Error())
		}
	}
}

const (
	lookEvery = 100 * time.Millisecond
	lookMost  = 5 * time.Second
)

// ends waits until the run that a final notification is about has ended, and says whether it did so as the notification
// has it: another attempt may have followed.
func (r *Runner) ends(ctx context.Context, tenant jobs.Tenant, n *note) (bool, error) {
	for begun := time.Now(); ; {
		in, err := r.store.Instance(ctx, tenant, n.Run)
		switch {
		case jobs.CodeOf(err) == jobs.NotFound && err != nil:
			return false, jobs.NoRetry(errors.New("the run that it tells of is not kept any more"))
		case err != nil:
			return false, err
		case in.State.Final():
			return (in.State == jobs.Succeeded) == (n.State == httpspec.StatusFinalSucceed), nil
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

// meant is the call of a notification as the job has it that it tells of. Whoever may start runs may start one of this
// job, and would otherwise have any call made, with any secret in it.
func (r *Runner) meant(ctx context.Context, tenant jobs.Tenant, n *note) (*httpspec.Plan, error) {
	d, err := r.store.Definition(ctx, tenant, n.Job)
	switch {
	case err != nil && jobs.CodeOf(err) == jobs.NotFound:
		return nil, jobs.NoRetry(fmt.Errorf("job %.200s, which it tells of, is gone", n.Job))
	case err != nil:
		return nil, err
	}
	none := jobs.NoRetry(fmt.Errorf("job %.200s does not tell anybody this, or not any more", n.Job))
	if jobs.NoHTTP(d.Policy.HTTP) {
		return nil, none
	}
	plan, err := httpspec.Parse(d.Policy.HTTP)
	if err != nil {
		return nil, jobs.NoRetry(err)
	}
	for _, to := range plan.Notification {
		call := asJSON(to.Call)
		if !reflect.DeepEqual(parsed(call), parsed(n.Call)) {
			continue
		}
		alone, err := httpspec.Parse(asJSON(map[string]any{"request": []json.RawMessage{call}, "serviceName": plan.ServiceName}))
		if err != nil {
			return nil, jobs.NoRetry(err)
		}
		return alone, nil
	}
	return nil, none
}

// deliver makes the call of a notification.
func (r *Runner) deliver(ctx context.Context, n note) error {
	at := jobs.Attempt(ctx)
	if n.Final {
		if so, err := r.ends(ctx, at.Tenant, &n); err != nil || !so {
			if err == nil {
				jobs.Log(ctx).Info("the run did not end so after all: nothing is told")
			}
			return err
		}
	}
	plan, err := r.meant(ctx, at.Tenant, &n)
	if err != nil {
		return err
	}
	v := httpspec.Values{System: exact(n.System), Named: exact(n.Named), Args: exact(n.Args), Variables: r.cfg.Variables, Secrets: r.cfg.Secrets}
	v.Responses = append(v.Responses, n.Responses...)
	a, err := r.send(ctx, plan.Steps[0], v, map[string]string{"Idempotency-Key": at.Run.String()}, "notification", httpspec.NewMask(plan.Hidden(r.cfg.Secrets)...))
	if err == nil && a.Status >= 300 {
		err = fmt.Errorf("it was answered with %d: %.300s", a.Status, a.Body)
	}
	if err == nil || jobs.IsFinal(err) || jobs.FailCode(err) == CodeCircuitOpen {
		return err
	}
	code := codeUndelivered
	if at.Number > soonTries {
		code = codeWaiting
	}
	return jobs.Fail(code, err)
}

// exact are values with their numbers as they were written.
func exact(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(asJSON(m)))
	d.UseNumber()
	var out map[string]any
	if d.Decode(&out) != nil {
		return m
	}
	return out
}
