// Package workertest tests jobs. [Run] calls a handler once and returns its outcome. [Bubble] runs a whole Carillon in
// virtual time: a week of a daily job takes a tenth of a second:
//
//	workertest.Bubble(t, func(t *testing.T, c *workertest.Carillon) {
//		c.Start(worker.Config{}, closeDay)
//		c.Pass(48 * time.Hour)
//		if runs := c.Runs("billing.close-day"); len(runs) != 2 { ... }
//	})
package workertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Options describe the attempt for Run. The zero value is the first attempt of a run.
type Options struct {
	Context    context.Context // default t.Context()
	Number     uint32          // of the attempt; default 1
	Due        time.Time       // of the run; default now
	Checkpoint any             // what an earlier attempt saved
	Tenant     jobs.Tenant     // default jobs.DefaultTenant
	Index      int             // of a broadcast to Total workers, from 0
	Total      int
}

// Attempt is the outcome of Run.
type Attempt struct {
	Err        error           // what it returned
	Final      bool            // Err was wrapped in jobs.NoRetry
	Code       string          // of Err, as jobs.Fail set it
	Snoozed    time.Duration   // Err came from jobs.Snooze
	Result     json.RawMessage // what it passed to jobs.Result last
	Checkpoint json.RawMessage // what it passed to jobs.Save last, or found
	Progress   []Progress      // each call, in order
	Log        string          // what it logged, a line each: level=INFO msg="card declined" code=51
}

// Progress is one call of jobs.Progress.
type Progress struct {
	Done, Total int64
	Text        string
}

// Run calls a job's handler once, in the test's goroutine. It converts the arguments to JSON and back, as an enqueue
// and a worker do; nil means none. A panic of the handler fails the test.
func Run(t testing.TB, job jobs.Job, args any, o Options) Attempt {
	t.Helper()
	raw := encode(t, "arguments", args)
	if err := kernel.CheckArgs(raw); err != nil {
		t.Fatalf("job %s: %v", job.Key(), err)
	}
	if o.Context == nil {
		o.Context = t.Context()
	}
	if o.Due.IsZero() {
		o.Due = time.Now()
	}
	r := &recorder{info: jobs.AttemptInfo{
		Tenant: o.Tenant, Run: kernel.DerivedID(t.Name(), string(job.Key())), Key: job.Key(), Due: kernel.Instant(o.Due), Number: max(o.Number, 1), Worker: "test",
		Index: o.Index, Total: o.Total,
	}}
	if o.Tenant == "" {
		r.info.Tenant = jobs.DefaultTenant
	}
	r.left.Checkpoint = encode(t, "checkpoint", o.Checkpoint)
	r.log = slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime}))
	err := job.Run(jobs.WithRunning(o.Context, r), raw)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left.Err, r.left.Log = err, r.text.String()
	r.left.Final, r.left.Code = outcome.IsFinal(err), outcome.CodeOf(err)
	r.left.Snoozed, _ = outcome.Snoozed(err)
	return r.left
}

func encode(t testing.TB, what string, v any) []byte {
	t.Helper()
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%s cannot be written as JSON: %v", what, err)
	}
	return raw
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.Attr{}
	}
	return a
}

// recorder is jobs.Running for a test.
type recorder struct {
	info jobs.AttemptInfo
	log  *slog.Logger

	mu   sync.Mutex
	text bytes.Buffer
	left Attempt
}

func (r *recorder) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(line)
}

func (r *recorder) Log() *slog.Logger         { return r.log }
func (r *recorder) Attempt() jobs.AttemptInfo { return r.info }

func (r *recorder) Progress(done, total int64, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left.Progress = append(r.left.Progress, Progress{done, total, text})
}

func (r *recorder) Result(v any) error {
	return r.keep("result", v, kernel.CheckResult, &r.left.Result)
}

func (r *recorder) Save(ctx context.Context, v any) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return r.keep("checkpoint", v, kernel.CheckCheckpoint, &r.left.Checkpoint)
}

func (r *recorder) keep(what string, v any, check func([]byte) error, to *json.RawMessage) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return kernel.Invalid("%s cannot be written as JSON: %v", what, err)
	}
	if err := check(raw); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = raw
	return nil
}

func (r *recorder) Load(v any) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.left.Checkpoint) == 0 {
		return false, nil
	}
	return true, json.Unmarshal(r.left.Checkpoint, v)
}
