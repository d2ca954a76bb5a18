package httpjob

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Feedback is how a service reports the progress of an asynchronous job without a checkUrl: it posts reports to a URL
// that it got with the request. The URL is signed for one attempt of one run, with a key that is stored in the run's
// row. Any node stores a report there, too, where the attempt finds it.

// awaits reports whether services call back.
func (w *work) awaits() bool { return w.plan.Async && w.plan.Check == nil }

// errNoFeedback is returned where an asynchronous job has neither a checkUrl nor a feedback URL.
var errNoFeedback = errors.New("the job is asynchronous and has no checkUrl, and its worker has no feedback URL: " +
	"give the job a checkUrl, or set http-jobs.feedback-url where HTTP jobs run (http.url of a server)")

// expect has the attempt wait for callbacks, or continue to wait for those that an earlier one has asked for.
func (w *work) expect(ctx context.Context) error {
	if !w.awaits() || w.state.Final != nil {
		return nil
	}
	if w.cfg.FeedbackURL == "" && w.cfg.InnerFeedbackURL == "" {
		return jobs.NoRetry(errNoFeedback)
	}
	at := jobs.Attempt(ctx)
	if begun := w.state.Awaits; begun > 0 {
		run, err := w.store.Run(ctx, at.Tenant, at.Run)
		if err != nil {
			return again(ctx, fmt.Errorf("read the reports: %w", err))
		}
		if f := run.Feedback; f != nil && f.Attempt == begun && f.Lasts {
			w.feedback = f
			return nil
		}
		w.state = state{} // no report can arrive any more
	}
	k := kernel.Expect{ID: at.Run, Worker: at.Worker, Attempt: at.Number, Key: make([]byte, kernel.FeedbackKey), Lasts: w.plan.QoS == 1}
	_, _ = rand.Read(k.Key) // it never fails
	e := kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: at.Tenant, Actor: "worker:" + at.Worker, Command: k}
	if err := w.store.Apply(ctx, []kernel.Envelope{e})[0].Err; err != nil {
		return again(ctx, fmt.Errorf("wait for callbacks: %w", err))
	}
	w.feedback, w.state.Awaits = &kernel.Feedback{Key: k.Key, Attempt: k.Attempt}, at.Number
	return nil
}

// storePause is how long a run waits for a store that does not answer.
const storePause = 5 * time.Second

// again tries the attempt once more, at no cost, if the store could not be reached.
func again(ctx context.Context, err error) error {
	if code := jobs.CodeOf(err); code == jobs.Unavailable || code == jobs.Unknown {
		jobs.Log(ctx).Warn("the store does not answer", "err", err.Error())
		return jobs.Snooze(storePause)
	}
	return err
}

// feedbackURLs are where the service may report on this very request: from outside, and from within the cluster's
// network.
func (w *work) feedbackURLs(ctx context.Context) (outer, inner string) {
	if w.feedback == nil {
		return "", ""
	}
	at, nonce := jobs.Attempt(ctx), uint64(w.calls)
	query := url.Values{"run": {at.Run.String()}, "attempt": {strconv.FormatUint(uint64(w.feedback.Attempt), 10)}, "token": {w.token(at.Run, nonce)}}
	if at.Tenant != jobs.DefaultTenant {
		query.Set("tenant", string(at.Tenant))
	}
	at2 := func(base string) string {
		return strings.TrimSuffix(base, "/") + "/api/v1/seed/jobs/" + url.PathEscape(string(at.Key)) + "/feedback/" + strconv.FormatUint(nonce, 10) + "?" + query.Encode()
	}
	outer, inner = cmp.Or(w.cfg.FeedbackURL, w.cfg.InnerFeedbackURL), cmp.Or(w.cfg.InnerFeedbackURL, w.cfg.FeedbackURL)
	return at2(outer), at2(inner)
}

// token returns what authenticates a URL.
func (w *work) token(run jobs.ID, nonce uint64) string {
	return base64.RawURLEncoding.EncodeToString(w.feedback.Sign(run, w.feedback.Attempt, nonce))
}

// How often the run's row is read for reports: often at first, and after each report.
const (
	lookFirst = 100 * time.Millisecond
	lookLast  = 2 * time.Second
)

// listen waits until a report ends the work.
func (w *work) listen(ctx context.Context) error {
	at := jobs.Attempt(ctx)
	most := lookLast
	if s := w.plan.CheckRateSeconds; s > 0 {
		most = time.Duration(s) * time.Second
	}
	for pause := lookFirst; ; {
		run, err := w.store.Run(ctx, at.Tenant, at.Run)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			jobs.Log(ctx).Warn("a report cannot be read", "err", err.Error())
		case run.Feedback == nil || run.Feedback.Attempt != w.feedback.Attempt:
			return errors.New("another attempt has started the work again")
		default:
			reports, n := run.Feedback.Since(w.state.Processed)
			if n > w.state.Processed {
				w.state.Processed, pause = n, lookFirst
			}
			for _, raw := range reports {
				r, err := httpspec.ReadReport(masked(w.mask, raw))
				if err != nil {
					continue // it was stored unread
				}
				if done, err := w.receive(ctx, statusOfFeedback, r); done {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		pause = min(pause*3/2, most)
	}
}

// statusOfFeedback is the status of notifications about reports.
const statusOfFeedback = 200
