package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// The routes of workers in other languages: docs/http.md describes them.

// longestPoll is how long a poll may wait; a server's limit on responses is twice that.
const longestPoll = 30 * time.Second

// WorkersJob is a job as a worker's code describes it.
type WorkersJob struct {
	Key      jobs.Key `json:"key" maxLength:"200"`
	Kind     string   `json:"kind" enum:"recurring,triggered"`
	Version  int      `json:"version,omitempty" minimum:"0" doc:"Code version: fields that users have not edited follow the highest version that registers."`
	Args     *Object  `json:"argsSchema,omitempty" doc:"A JSON Schema of its arguments."`
	Settings *Policy  `json:"settings,omitempty" doc:"Settings in the code. Edits by users override them."`
}

// Attempt names an attempt of a run.
type Attempt struct {
	Run     string `json:"run" format:"uuid"`
	Attempt uint32 `json:"attempt" minimum:"1" doc:"The fencing token: of two workers with the same run, the one with the higher attempt owns it."`
}

func (a *Attempt) id() (jobs.ID, error) {
	id, err := jobs.ParseID(a.Run)
	if err != nil {
		return id, kernel.Invalid("invalid run %.50q: want an ID", a.Run)
	}
	return id, nil
}

type registerInput struct {
	Body struct {
		Name    string       `json:"name" minLength:"1" maxLength:"180" doc:"Name of the worker, such as its host's."`
		Start   string       `json:"start" minLength:"1" maxLength:"64" pattern:"^[0-9a-z]+$" patternDescription:"small letters and digits" doc:"Identifies this start of the program: random, and the same until it ends."`
		App     string       `json:"app" minLength:"1" maxLength:"200" doc:"The worker group."`
		Slots   int          `json:"slots" minimum:"1" maximum:"10000" doc:"Max parallel runs."`
		Tags    []string     `json:"tags,omitempty" maxItems:"32" nullable:"false" doc:"Tags of this worker, such as gpu or zone=eu."`
		Host    string       `json:"host,omitempty" maxLength:"200"`
		PID     int          `json:"pid,omitempty" minimum:"0"`
		Version string       `json:"version,omitempty" maxLength:"200" doc:"Version of the program, for pages."`
		Jobs    []WorkersJob `json:"jobs" minItems:"1" maxItems:"1000" nullable:"false"`
		Runs    []Attempt    `json:"runs,omitempty" maxItems:"1000" nullable:"false" doc:"Its current attempts, if it moved from another node or this node has restarted."`
	}
}

// Halt is an attempt that a worker should end.
type Halt struct {
	Attempt
	Why    string `json:"why" enum:"cancelled,timeout,lease_lost"`
	By     string `json:"by,omitempty" doc:"Who cancelled it."`
	Reason string `json:"reason,omitempty"`
}

// Instructions are sent to a worker with each response.
type Instructions struct {
	Worker  string  `json:"worker" doc:"Its name: send it with each request."`
	Lease   float64 `json:"leaseSeconds" doc:"Lease: after this time without a request, its runs may go to other workers."`
	Every   float64 `json:"heartbeatSeconds" doc:"Heartbeat interval while it has runs."`
	Stop    []Halt  `json:"stop" nullable:"false" doc:"Attempts to end: they occupy their slots until the worker finishes them."`
	Drained bool    `json:"drained,omitempty" doc:"It is drained: it gets no new runs."`
}

func answerOf(p ops.HTTPAnswer) Instructions {
	t := Instructions{Worker: p.Worker, Lease: p.Lease.Seconds(), Every: p.Every.Seconds(), Stop: make([]Halt, len(p.Stop)), Drained: p.Resting}
	for i, s := range p.Stop {
		t.Stop[i] = Halt{Attempt: Attempt{s.ID.String(), s.Attempt}, Why: "cancelled", By: s.By, Reason: s.Reason}
		switch {
		case s.Stale:
			t.Stop[i].Why = "lease_lost"
		case s.Timeout:
			t.Stop[i].Why = "timeout"
		}
	}
	return t
}

// Work is a run for a worker.
type Work struct {
	Attempt
	Job        jobs.Key   `json:"job"`
	Handler    jobs.Key   `json:"handler,omitempty" doc:"Key of the registered job whose code runs it; left out: job."`
	Args       *Object    `json:"args,omitempty"`
	Due        *time.Time `json:"due,omitempty" doc:"Its due time, however late it is."`
	Deadline   *time.Time `json:"deadline,omitempty" doc:"When the attempt times out, by the server's clock."`
	Left       float64    `json:"secondsLeft,omitempty" doc:"Until then; 0 = no timeout."`
	Checkpoint Value      `json:"checkpoint,omitempty" doc:"The checkpoint of an earlier attempt."`
	Index      uint32     `json:"index,omitempty" doc:"For a broadcast: index of this run, from 0."`
	Total      uint32     `json:"total,omitempty" doc:"For a broadcast: number of its runs."`
	Trace      string     `json:"traceparent,omitempty" doc:"W3C trace context of the request that created the run."`
}

// Polled is the response to a poll.
type Polled struct {
	Instructions
	Runs  []Work `json:"runs" nullable:"false"`
	Batch string `json:"batch,omitempty" doc:"Identifies this response: send it as got in the next poll."`
}

type pollInput struct {
	Body struct {
		Worker string   `json:"worker" maxLength:"300"`
		Want   int      `json:"want,omitempty" minimum:"1" maximum:"1000" doc:"Max runs. Default: 1."`
		Got    string   `json:"got,omitempty" maxLength:"40" doc:"The batch of the last response that arrived: without it the same runs are sent again."`
		Wait   *float64 `json:"waitSeconds,omitempty" minimum:"0" maximum:"30" doc:"How long to wait for runs. Default: 30."`
	}
}

type heartbeatInput struct {
	Body struct {
		Worker string `json:"worker" maxLength:"300"`
		Drain  bool   `json:"drain,omitempty" doc:"Send no new runs: the worker is about to stop."`
	}
}

// Of names an attempt of a worker.
type Of struct {
	Worker string `json:"worker" maxLength:"300"`
	Attempt
}

type finishInput struct {
	Body struct {
		Of
		Result  Value    `json:"result,omitempty" doc:"Result of the run: any JSON, up to 64 KiB."`
		Error   string   `json:"error,omitempty" maxLength:"65536" doc:"Why it failed; left out: it succeeded."`
		Code    string   `json:"code,omitempty" maxLength:"64" doc:"Error code, for the job's retry rules."`
		NoRetry bool     `json:"noRetry,omitempty" doc:"Do not retry."`
		Snooze  *float64 `json:"snoozeSeconds,omitempty" minimum:"0" maximum:"31536000" doc:"Neither success nor failure: start another attempt after this delay."`
	}
}

// Ended is the state of a run after an attempt.
type Ended struct {
	State   string     `json:"state"`
	RetryAt *time.Time `json:"retryAt,omitempty" doc:"When the next attempt is due."`
}

type progressInput struct {
	Body struct {
		Of
		Done  int64  `json:"done" minimum:"0"`
		Total int64  `json:"total,omitempty" minimum:"0" doc:"0 = not known."`
		Text  string `json:"text,omitempty" maxLength:"1000" doc:"A short text; 200 bytes are kept."`
	}
}

type checkpointInput struct {
	Body struct {
		Of
		Data Value `json:"data" doc:"Any JSON, up to 64 KiB: the next attempt of the run gets it."`
	}
}

type logsInput struct {
	Body struct {
		Of
		First uint64 `json:"first,omitempty" maximum:"1000000000" doc:"Number of the first line, from 1: repeated lines are stored once."`
		Lines []struct {
			Level string `json:"level,omitempty" enum:"DEBUG,INFO,WARN,ERROR" doc:"Default: INFO."`
			Text  string `json:"text" doc:"8 KiB are kept."`
		} `json:"lines" minItems:"1" maxItems:"1000" nullable:"false"`
	}
}

func (a *API) routeWorker() {
	work(a, "register", "Register a worker", 0, "Repeat the same request whenever a node answers 404 with the code unknown_worker: it has restarted, or is another node.", a.registerWorker)
	work(a, "poll", "Poll for runs", 0, "Waits until there are some. One poll at a time: the next one ends the previous one.", a.pollWorker)
	a.long["POST "+Prefix+"/worker/poll"] = true
	work(a, "heartbeat", "Renew the leases of a worker's runs", 0, "Every request of a worker renews them, and so does a poll while it waits.", a.heartbeatWorker)
	work(a, "finish", "Finish an attempt", 0, "The result is stored before the response. A repeated request gets the same response. 409 with the code lease_lost: the worker no longer owned the attempt, and its result is discarded.", a.finishWorker)
	work(a, "progress", "Report progress of an attempt", http.StatusNoContent, "At most one report a second is used.",
		func(ctx context.Context, in *progressInput) (*struct{}, error) {
			id, err := in.Body.id()
			if err != nil {
				return nil, err
			}
			return nil, a.ops.HTTPWorkers().Progress(ctx, who(ctx), in.Body.Worker, id, in.Body.Attempt.Attempt, bus.Progress{Done: in.Body.Done, Total: in.Body.Total, Text: in.Body.Text})
		})
	work(a, "checkpoint", "Store a checkpoint for the next attempt", http.StatusNoContent, "The checkpoint is stored before the response.",
		func(ctx context.Context, in *checkpointInput) (*struct{}, error) {
			id, err := in.Body.id()
			if err != nil {
				return nil, err
			}
			return nil, a.ops.HTTPWorkers().Checkpoint(ctx, who(ctx), in.Body.Worker, id, in.Body.Attempt.Attempt, in.Body.Data)
		})
	work(a, "logs", "Write to the log of an attempt", http.StatusNoContent, "At most 1 MiB of an attempt is kept.", a.logWorker)
	work(a, "leave", "Deregister a worker", http.StatusNoContent, "Its runs are released, which uses no retry.",
		func(ctx context.Context, in *struct {
			Body struct {
				Worker string `json:"worker" maxLength:"300"`
			}
		}) (*struct{}, error) {
			return nil, a.ops.HTTPWorkers().Leave(ctx, who(ctx), in.Body.Worker)
		})
}

// work adds a route for workers: for tokens of workers, and of admins, who could create a worker token themselves.
func work[I, O any](a *API, verb, summary string, status int, description string, handler func(context.Context, *I) (*O, error)) {
	op := a.rule(ops.Admin, huma.Operation{OperationID: verb + "-worker", Method: http.MethodPost, Path: "/worker/" + verb, Tags: []string{"worker"},
		Summary: summary, Description: description, DefaultStatus: status}, ops.WorkerRole)
	op.MaxBodyBytes, op.BodyReadTimeout = -1, -1
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, problemOf(ctx, a.episodes, workersProblem(err))
		}
		return out, nil
	})
}

// workersProblem gives the two refusals that a worker must distinguish codes of their own.
func workersProblem(err error) error {
	if refusal, ok := errors.AsType[*kernel.Refusal](err); ok {
		switch refusal.Code {
		case jobs.NotFound:
			return problem(http.StatusNotFound, "unknown_worker", refusal.Text)
		case jobs.Stale:
			return problem(http.StatusConflict, "lease_lost", refusal.Text)
		}
	}
	return err
}

func (a *API) registerWorker(ctx context.Context, in *registerInput) (*struct{ Body Instructions }, error) {
	b := &in.Body
	w := ops.HTTPWorker{App: b.App, Name: b.Name, Start: b.Start, Slots: b.Slots, Tags: b.Tags, Host: b.Host, PID: b.PID, Version: b.Version}
	for _, j := range b.Jobs {
		d := kernel.Declaration{Key: j.Key, Kind: kindOf(j.Kind), Version: j.Version}
		if j.Args != nil {
			d.Schema = []byte(*j.Args)
		}
		if j.Settings != nil {
			d.Code = j.Settings.settings()
		}
		w.Jobs = append(w.Jobs, d)
	}
	for _, r := range b.Runs {
		id, err := r.id()
		if err != nil {
			return nil, err
		}
		w.Has = append(w.Has, ops.HTTPAttempt{Run: id, Attempt: r.Attempt})
	}
	answer, err := a.ops.HTTPWorkers().Register(ctx, who(ctx), w)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Instructions }{answerOf(answer)}, nil
}

func (a *API) pollWorker(ctx context.Context, in *pollInput) (*struct{ Body Polled }, error) {
	q := ops.HTTPPoll{Want: max(1, in.Body.Want), Got: in.Body.Got, Wait: longestPoll}
	if in.Body.Wait != nil {
		q.Wait = seconds(*in.Body.Wait)
	}
	got, err := a.ops.HTTPWorkers().Poll(ctx, who(ctx), in.Body.Worker, q)
	if err != nil {
		return nil, err
	}
	out := Polled{Instructions: answerOf(got.HTTPAnswer), Batch: got.Batch, Runs: make([]Work, len(got.Runs))}
	for i, r := range got.Runs {
		out.Runs[i] = Work{Attempt: Attempt{r.ID.String(), r.Run.Attempt}, Job: r.Key, Handler: r.Handler, Args: object(r.Args), Due: when(r.Due), Deadline: when(r.Deadline),
			Left: r.Left.Seconds(), Checkpoint: Value(r.Checkpoint), Trace: r.Trace}
		if p := r.Place; p != nil {
			out.Runs[i].Index, out.Runs[i].Total = p.Index, p.Total
		}
	}
	return &struct{ Body Polled }{out}, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func (a *API) heartbeatWorker(ctx context.Context, in *heartbeatInput) (*struct{ Body Instructions }, error) {
	answer, err := a.ops.HTTPWorkers().Heartbeat(ctx, who(ctx), in.Body.Worker, in.Body.Drain)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Instructions }{answerOf(answer)}, nil
}

func (a *API) finishWorker(ctx context.Context, in *finishInput) (*struct{ Body Ended }, error) {
	b := &in.Body
	id, err := b.id()
	if err != nil {
		return nil, err
	}
	f := kernel.Finish{ID: id, Attempt: b.Attempt.Attempt, Outcome: kernel.OutcomeSuccess, Result: b.Result, Error: b.Error, Code: b.Code}
	failed := b.Error != "" || b.Code != "" || b.NoRetry
	switch {
	case b.Snooze != nil && (failed || len(b.Result) > 0), failed && len(b.Result) > 0:
		return nil, kernel.Invalid("an attempt has one outcome: give a result, an error, or snoozeSeconds")
	case b.Snooze != nil:
		f.Outcome, f.Delay = kernel.OutcomeSnooze, seconds(*b.Snooze)
	case failed && b.Error == "":
		return nil, kernel.Invalid("code and noRetry need an error: set error")
	case b.NoRetry:
		f.Outcome = kernel.OutcomeFatal
	case failed:
		f.Outcome = kernel.OutcomeError
	}
	run, err := a.ops.HTTPWorkers().Finish(ctx, who(ctx), b.Worker, f)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Ended }{Ended{State: run.State.String(), RetryAt: when(run.RetryAt)}}, nil
}

func (a *API) logWorker(ctx context.Context, in *logsInput) (*struct{}, error) {
	id, err := in.Body.id()
	if err != nil {
		return nil, err
	}
	l := ops.HTTPLog{First: in.Body.First, Lines: make([]ops.HTTPLine, len(in.Body.Lines))}
	for i, line := range in.Body.Lines {
		if l.Lines[i] = (ops.HTTPLine{Level: line.Level, Text: line.Text}); line.Level == "" {
			l.Lines[i].Level = "INFO"
		}
	}
	return nil, a.ops.HTTPWorkers().Log(ctx, who(ctx), in.Body.Worker, id, in.Body.Attempt.Attempt, l)
}
