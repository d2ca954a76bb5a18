package httpjob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/jobs"
)

// state is a run's progress. With qos 1 it is saved after each step, and a later attempt continues from there.
type state struct {
	Step      int              `json:"step"` // requests that are done
	Named     map[string]any   `json:"named,omitempty"`
	Responses []any            `json:"responses,omitempty"`
	Status    int              `json:"status,omitempty"` // of the last answer
	Final     *httpspec.Report `json:"final,omitempty"`  // how an asynchronous job ended
	Awaits    uint32           `json:"awaits,omitempty"` // the attempt whose request asked for callbacks
	Processed uint64           `json:"heard,omitempty"`  // how many of their reports were processed
}

// UnmarshalJSON reads saved progress. The numbers of answers keep their digits.
func (s *state) UnmarshalJSON(raw []byte) error {
	type plain state
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode((*plain)(s))
}

// work is one attempt of a run.
type work struct {
	*Runner
	plan     *httpspec.Plan
	args     map[string]any
	state    state
	calls    int              // requests and checks that this attempt made
	notified int              // notifications that it sent
	feedback *kernel.Feedback // authenticates services that call back; nil = none may
	mask     *httpspec.Mask   // of secrets: any answer may repeat them
}

// CodeConnect is the code of a run whose call was not answered at all.
const CodeConnect = "connect"

// run runs an attempt, and sends the notifications of its end.
func (r *Runner) run(ctx context.Context, k known, args []byte) error {
	w := work{Runner: r, plan: k.plan, mask: httpspec.NewMask(k.hidden...)}
	if len(args) > 0 {
		v, is := parsed(args).(map[string]any)
		if !is {
			return jobs.NoRetry(errors.New("the arguments are not a JSON object"))
		}
		w.args = v
	}
	if w.plan.QoS == 1 {
		if kept, err := jobs.Load(ctx, &w.state); err != nil {
			return jobs.NoRetry(fmt.Errorf("read the saved state: %w", err))
		} else if kept {
			jobs.Log(ctx).Info("continuing from the saved state", "requests_done", w.state.Step)
		}
	}
	if err := w.all(ctx); err != nil {
		return w.failed(ctx, err)
	}
	report := httpspec.Report{Status: httpspec.StatusFinalSucceed, Data: w.last()}
	if f := w.state.Final; f != nil {
		report = *f
		report.Status = httpspec.StatusFinalSucceed
	}
	w.notify(ctx, httpspec.StatusFinalSucceed, w.state.Status, report)
	if last := w.last(); last != nil {
		return jobs.Result(ctx, last)
	}
	return nil
}

// last returns the last answer, as JSON, or nil if it is missing or no result that can be kept.
func (w *work) last() json.RawMessage {
	if len(w.state.Responses) == 0 {
		return nil
	}
	if raw := asJSON(w.state.Responses[len(w.state.Responses)-1]); kernel.CheckResult(raw) == nil {
		return raw
	}
	return nil
}

func asJSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil // it was read as JSON, and can be written
	}
	return raw
}

// all makes the remaining requests, and waits for the outcome of an asynchronous job.
func (w *work) all(ctx context.Context) error {
	if err := w.expect(ctx); err != nil {
		return err
	}
	if w.feedback != nil { // an answer may repeat the feedback URL, too
		hidden := w.plan.Hidden(w.cfg.Secrets)
		for n := range w.plan.Steps {
			hidden = append(hidden, w.token(jobs.Attempt(ctx).Run, uint64(n+1)))
		}
		w.mask = httpspec.NewMask(hidden...)
	}
	for w.state.Step < len(w.plan.Steps) {
		if err := w.step(ctx); err != nil {
			return err
		}
	}
	if !w.plan.Async || w.state.Final != nil {
		return nil
	}
	if w.awaits() {
		return w.listen(ctx)
	}
	return w.check(ctx)
}

// step makes the next request.
func (w *work) step(ctx context.Context) error {
	i := w.state.Step
	a, err := w.ask(ctx, w.plan.Steps[i], fmt.Sprintf("request %d", i+1), "-"+strconv.Itoa(i+1))
	if err != nil {
		if code := outcome.CodeOf(err); code != "" && code != CodeCircuitOpen {
			w.notify(ctx, code, 0, httpspec.Report{Status: httpspec.StatusFailed, Error: code, Message: err.Error()})
		}
		return err
	}
	w.state.Status = a.Status
	answer, status := parsed(a.Body), strconv.Itoa(a.Status)
	report := httpspec.Report{Status: httpspec.StatusSucceed, Data: asJSON(answer)}
	if a.Status >= 400 {
		report.Status, report.Error = httpspec.StatusFailed, status
	}
	before := w.state
	w.answered(i, answer) // its notifications may use it
	if !w.plan.Async || a.Status >= 400 {
		w.notify(ctx, status, a.Status, report)
	}
	if a.Status >= 400 {
		w.state = before
		return jobs.Fail(status, fmt.Errorf("request %d was answered with %d: %.300s", i+1, a.Status, a.Body))
	}
	if a.Cut {
		return jobs.NoRetry(fmt.Errorf("request %d was answered with more than %d bytes", i+1, MaxKept))
	}
	w.state.Step++
	return w.keep(ctx)
}

// answered adds the response to a request to those that calls may use.
func (w *work) answered(i int, answer any) {
	w.state.Responses = append(slices.Clip(w.state.Responses), answer)
	if name := w.plan.Request[i].RespEnvName; name != "" {
		w.state.Named = maps.Clone(w.state.Named)
		if w.state.Named == nil {
			w.state.Named = map[string]any{}
		}
		w.state.Named[name] = answer
	}
}

// keep saves the state, if the job wants that.
func (w *work) keep(ctx context.Context) error {
	if w.plan.QoS != 1 {
		return nil
	}
	err := jobs.Save(ctx, w.state)
	if jobs.CodeOf(err) == jobs.BadInput { // the answers are too many to be kept, and will be again
		err = jobs.NoRetry(err)
	}
	if err != nil {
		return fmt.Errorf("save the state: %w", err)
	}
	return nil
}

// mostSilent is how many checks in a row may go unanswered.
const mostSilent = 10

// check polls for the outcome.
func (w *work) check(ctx context.Context) error {
	every := time.Duration(max(1, w.plan.CheckRateSeconds)) * time.Second
	pause := min(every, 200*time.Millisecond) // what is done soon is known soon
	for silent := 0; ; pause = every {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		a, err := w.ask(ctx, w.plan.Check, "check", "")
		if err == nil && a.Status >= 400 {
			err = fmt.Errorf("the check was answered with %d", a.Status)
		}
		var r *httpspec.Report
		if err == nil {
			if r, err = httpspec.ReadReport(a.Body); err != nil {
				err = fmt.Errorf("the answer to the check cannot be read: %w", err)
			}
		}
		if err != nil {
			if outcome.IsFinal(err) || ctx.Err() != nil {
				return err
			}
			if outcome.CodeOf(err) == CodeCircuitOpen {
				continue // it is asked again when it may be
			}
			if silent++; silent >= mostSilent {
				return w.over(ctx, jobs.Fail(CodeConnect, fmt.Errorf("%d checks in a row failed; the last: %w", silent, err)))
			}
			jobs.Log(ctx).Warn("a check failed", "err", err.Error())
			continue
		}
		silent = 0
		if done, err := w.receive(ctx, a.Status, r); done {
			return err
		}
	}
}

// receive processes a report, and reports whether it was the last.
func (w *work) receive(ctx context.Context, status int, r *httpspec.Report) (done bool, err error) {
	w.state.Status = status
	if d, total, ok := r.Done(); ok {
		jobs.Progress(ctx, d, total, r.Message)
	} else if r.Message != "" {
		jobs.Progress(ctx, 0, 0, r.Message)
	}
	state := "inprogress"
	switch {
	case r.Failed():
		if state = r.Error; state == "" {
			state = httpspec.StatusFailed
		}
	case r.Over():
		state = httpspec.StatusSucceed
	}
	w.notify(ctx, state, status, *r)
	if !r.Over() {
		return false, nil
	}
	if r.Failed() {
		text := r.Message
		if text == "" {
			text = "the service reported a failure"
		}
		err := jobs.Fail(state, errors.New(text))
		if r.Status == httpspec.StatusFinalFailed {
			err = jobs.NoRetry(err)
		}
		return true, w.over(ctx, err)
	}
	w.state.Final = r
	w.state.Responses = append(w.state.Responses, parsed(r.Data))
	return true, w.keep(ctx)
}

// over fails the work that the requests began: the next attempt makes them all anew.
func (w *work) over(ctx context.Context, err error) error {
	w.state = state{Status: w.state.Status}
	if kept := w.keep(ctx); kept != nil {
		jobs.Log(ctx).Warn("the saved state could not be removed", "err", kept.Error())
	}
	return err
}

// ask fills a template and makes the call. part is the end of the idempotency key, by which a service knows a repeated
// request; "" = the call changes nothing.
func (w *work) ask(ctx context.Context, t *httpspec.Template, what, part string) (*Answer, error) {
	w.calls++
	header := map[string]string{}
	if at := jobs.Attempt(ctx); part != "" {
		header["Idempotency-Key"], header["Fencing-Token"] = at.Run.String()+part, strconv.FormatUint(uint64(at.Number), 10)
	}
	a, err := w.send(ctx, t, w.values(ctx), header, what, w.mask)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return a, err
}

// send fills a template and makes the call. An error has the code that retry rules choose by. The answer, the error and
// the lines of the log are masked.
func (r *Runner) send(ctx context.Context, t *httpspec.Template, v httpspec.Values, header map[string]string, what string, mask *httpspec.Mask) (*Answer, error) {
	f, err := t.Fill(v)
	if err != nil {
		return nil, jobs.NoRetry(err)
	}
	to, err := r.cfg.Services.Resolve(f, r.cfg.Secrets)
	switch {
	case jobs.CodeOf(err) == jobs.Forbidden:
		return nil, jobs.NoRetry(jobs.Fail(CodeBlocked, fmt.Errorf("%s: %w", what, err)))
	case err != nil:
		return nil, jobs.NoRetry(err)
	}
	for name, value := range f.Headers {
		header[http.CanonicalHeaderKey(name)] = value
	}
	a, err := r.breakers.pass(ctx, to, func() (*Answer, error) {
		ctx, cancel := within(ctx, r.cfg.CallTimeout)
		defer cancel()
		return call(ctx, r.client, f.Method, to, header, f.Body, f.IsJSON)
	})
	open, put := errors.AsType[*circuitOpen](err)
	switch {
	case err == nil:
		a.Body = masked(mask, a.Body) // an answer may repeat secrets of its request
		jobs.Log(ctx).Info(what, "method", f.Method, "url", mask.Text(to), "status", a.Status, "took", a.Took.Round(time.Millisecond).String())
		return a, nil
	case put:
		jobs.Log(ctx).Warn(what+" is put off", "target", open.target, "until", open.until.UTC().Format(time.RFC3339))
		return nil, jobs.Fail(CodeCircuitOpen, fmt.Errorf("%s: %w", what, err))
	case errors.Is(err, ErrBlocked):
		return nil, jobs.NoRetry(jobs.Fail(CodeBlocked, fmt.Errorf("%s: %s", what, mask.Text(err.Error()))))
	case errors.Is(err, errCallTimeout):
		return nil, jobs.Fail("500", fmt.Errorf("%s: %w", what, err)) // rules of synchronous jobs call it so
	}
	return nil, jobs.Fail(CodeConnect, fmt.Errorf("%s: %s", what, mask.Text(err.Error())))
}

// values returns what templates are filled with at this point of the run.
func (w *work) values(ctx context.Context) httpspec.Values {
	at := jobs.Attempt(ctx)
	outer, inner := w.feedbackURLs(ctx)
	return httpspec.Values{Variables: w.cfg.Variables, Named: w.state.Named, Responses: w.state.Responses, Args: w.args, Secrets: w.cfg.Secrets,
		System: map[string]any{httpspec.JobID: string(at.Key), httpspec.ExecuteNumber: at.Execution, httpspec.RequestCounts: w.calls,
			httpspec.FeedbackURL: outer, httpspec.InnerFeedbackURL: inner, // "" without callbacks
			httpspec.NotifyBody: nil}} // only notifications have one
}

// failed sends the notifications of a failure, and of the end of the run if no attempt follows.
func (w *work) failed(ctx context.Context, err error) error {
	code, message := outcome.CodeOf(err), err.Error()
	if cause := context.Cause(ctx); cause != nil {
		if !errors.Is(cause, jobs.ErrTimeout) {
			return cause // ended elsewhere: no notification
		}
		// The run's own context has ended; the notifications get a short time of their own.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 800*time.Millisecond)
		defer cancel()
		ctx, err, code, message = last, cause, kernel.CodeTimeout, "it took longer than it may"
		if w.plan.Async {
			_ = w.over(ctx, nil)
		}
		w.notify(ctx, code, 0, httpspec.Report{Status: httpspec.StatusFailed, Error: code, Message: message})
	}
	if jobs.Last(ctx, err) {
		w.notify(ctx, httpspec.StatusFinalFailed, w.state.Status, httpspec.Report{Status: httpspec.StatusFinalFailed, Error: code, Message: message})
	}
	return err
}
