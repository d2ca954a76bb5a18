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

// longestPoll is how long a poll may wait; a server's limit on answers is twice that.
const longestPoll = 30 * time.Second

// WorkersJob is a job as a worker's code describes it.
type WorkersJob struct {
	Key      jobs.Key `json:"key" maxLength:"200"`
	Kind     string   `json:"kind" enum:"recurring,triggered"`
	Version  int      `json:"version,omitempty" minimum:"0" doc:"Of the code: the highest that registers sets what nobody edited."`
	Args     *Object  `json:"argsSchema,omitempty" doc:"A JSON Schema of its arguments."`
	Settings *Policy  `json:"settings,omitempty" doc:"What the code says about it. What people edit wins."`
}

// Attempt names an attempt of a run.
type Attempt struct {
	Run     string `json:"run" format:"uuid"`
	Attempt uint32 `json:"attempt" minimum:"1" doc:"The fencing token: of two that have the same run, the higher one counts."`
}

func (a *Attempt) id() (jobs.ID, error) {
	id, err := jobs.ParseID(a.Run)
	if err != nil {
		return id, kernel.Invalid("run is %.50q, which is no ID", a.Run)
	}
	return id, nil
}

type registerInput struct {
	Body struct {
		Name    string       `json:"name" minLength:"1" maxLength:"180" doc:"Of the worker, such as the host's."`
		Start   string       `json:"start" minLength:"1" maxLength:"64" pattern:"^[0-9a-z]+$" patternDescription:"small letters and digits" doc:"What tells this start of the program from others: random, and the same until it ends."`
		App     string       `json:"app" minLength:"1" maxLength:"200" doc:"The worker group."`
		Slots   int          `json:"slots" minimum:"1" maximum:"10000" doc:"Runs at the same time."`
		Tags    []string     `json:"tags,omitempty" maxItems:"32" nullable:"false" doc:"What this worker has that others may not, such as gpu or zone=eu."`
		Host    string       `json:"host,omitempty" maxLength:"200"`
		PID     int          `json:"pid,omitempty" minimum:"0"`
		Version string       `json:"version,omitempty" maxLength:"200" doc:"Of the program, as pages show it."`
		Jobs    []WorkersJob `json:"jobs" minItems:"1" maxItems:"1000" nullable:"false"`
		Runs    []Attempt    `json:"runs,omitempty" maxItems:"1000" nullable:"false" doc:"What it has in hand, if it comes from another node or this one has forgotten it."`
	}
}

// Halt is an attempt that a worker is to end.
type Halt struct {
	Attempt
	Why    string `json:"why" enum:"cancelled,timeout,lease_lost"`
	By     string `json:"by,omitempty" doc:"Who cancelled it."`
	Reason string `json:"reason,omitempty"`
}

// Told is what a worker is told with each answer.
type Told struct {
	Worker string  `json:"worker" doc:"Its name: send it along with everything."`
	Lease  float64 `json:"leaseSeconds" doc:"How long it may be silent, at least, before its runs are given to others."`
	Every  float64 `json:"heartbeatSeconds" doc:"How often it should be heard while it has runs."`
	Stop   []Halt  `json:"stop" nullable:"false" doc:"Attempts to end: until it says that they have ended, their slots are taken."`
	Rests  bool    `json:"drained,omitempty" doc:"Somebody has it take nothing for now."`
}

func toldOf(p ops.PullAnswer) Told {
	t := Told{Worker: p.Worker, Lease: p.Lease.Seconds(), Every: p.Every.Seconds(), Stop: make([]Halt, len(p.Stop)), Rests: p.Resting}
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
	Args       *Object    `json:"args,omitempty"`
	Due        *time.Time `json:"due,omitempty" doc:"The due time that it stands for, however late it is."`
	Deadline   *time.Time `json:"deadline,omitempty" doc:"When the attempt times out, by the server's clock."`
	Left       float64    `json:"secondsLeft,omitempty" doc:"Until then; 0 = it does not time out."`
	Checkpoint Value      `json:"checkpoint,omitempty" doc:"What an earlier attempt has kept."`
	Index      uint32     `json:"index,omitempty" doc:"Of a broadcast: which of its runs this is, from 0."`
	Total      uint32     `json:"total,omitempty" doc:"Of a broadcast: how many there are."`
	Trace      string     `json:"traceparent,omitempty" doc:"W3C trace context of who asked for the run."`
}

// Polled is the answer to a poll.
type Polled struct {
	Told
	Runs  []Work `json:"runs" nullable:"false"`
	Batch string `json:"batch,omitempty" doc:"Names this answer: say it as got in the next poll."`
}

type pollInput struct {
	Body struct {
		Worker string   `json:"worker" maxLength:"300"`
		Want   int      `json:"want,omitempty" minimum:"1" maximum:"1000" doc:"Runs at most; 1 if left out."`
		Got    string   `json:"got,omitempty" maxLength:"40" doc:"The batch of the last answer that arrived: without it the same runs come again."`
		Wait   *float64 `json:"waitSeconds,omitempty" minimum:"0" maximum:"30" doc:"How long to wait for runs; 30 if left out."`
	}
}

type heartbeatInput struct {
	Body struct {
		Worker string `json:"worker" maxLength:"300"`
		Drain  bool   `json:"drain,omitempty" doc:"Give it nothing more from here on: it is about to leave."`
	}
}

// Of is the attempt that a worker speaks of.
type Of struct {
	Worker string `json:"worker" maxLength:"300"`
	Attempt
}

type finishInput struct {
	Body struct {
		Of
		Result  Value    `json:"result,omitempty" doc:"What the run will be remembered by: any JSON, up to 64 KiB."`
		Error   string   `json:"error,omitempty" maxLength:"65536" doc:"Why it failed; left out: it succeeded."`
		Code    string   `json:"code,omitempty" maxLength:"64" doc:"Of the failure, for the job's retry rules."`
		NoRetry bool     `json:"noRetry,omitempty" doc:"No retry shall follow the failure."`
		Snooze  *float64 `json:"snoozeSeconds,omitempty" minimum:"0" maximum:"31536000" doc:"It has neither succeeded nor failed: begin another attempt so much later."`
	}
}

// Ended is where a run stands whose attempt has ended.
type Ended struct {
	State   string     `json:"state"`
	RetryAt *time.Time `json:"retryAt,omitempty" doc:"When the next attempt is due."`
}

type progressInput struct {
	Body struct {
		Of
		Done  int64  `json:"done" minimum:"0"`
		Total int64  `json:"total,omitempty" minimum:"0" doc:"0 = not known."`
		Text  string `json:"text,omitempty" maxLength:"1000" doc:"A few words; 200 bytes are kept."`
	}
}

type checkpointInput struct {
	Body struct {
		Of
		Data Value `json:"data" doc:"Any JSON, up to 64 KiB: the next attempt of the run is given it."`
	}
}

type logsInput struct {
	Body struct {
		Of
		First uint64 `json:"first,omitempty" maximum:"1000000000" doc:"The number of the first line, from 1: lines that are sent twice are then kept once."`
		Lines []struct {
			Level string `json:"level,omitempty" enum:"DEBUG,INFO,WARN,ERROR" doc:"INFO if left out."`
			Text  string `json:"text" doc:"8 KiB are kept."`
		} `json:"lines" minItems:"1" maxItems:"1000" nullable:"false"`
	}
}

func (a *API) routeWorker() {
	work(a, "register", "Register a worker", 0, "Say it again, in the same words, whenever a node answers 404 with the code unknown_worker: it has been started anew, or is another one.", a.registerWorker)
	work(a, "poll", "Ask for runs", 0, "Waits until there are some. One poll at a time: the next one ends the one before.", a.pollWorker)
	a.long["POST "+Prefix+"/worker/poll"] = true
	work(a, "heartbeat", "Keep the leases of a worker's runs", 0, "Every request of a worker does that, and so does a poll while it waits.", a.heartbeatWorker)
	work(a, "finish", "End an attempt", 0, "Answered when it is stored. Said again, it is answered alike. 409 with the code lease_lost: the attempt was not the worker's any more, and nothing of it counts.", a.finishWorker)
	work(a, "progress", "Say how far an attempt is", http.StatusNoContent, "At most one a second is passed on.",
		func(ctx context.Context, in *progressInput) (*struct{}, error) {
			id, err := in.Body.id()
			if err != nil {
				return nil, err
			}
			return nil, a.ops.Pull().Progress(ctx, who(ctx), in.Body.Worker, id, in.Body.Attempt.Attempt, bus.Progress{Done: in.Body.Done, Total: in.Body.Total, Text: in.Body.Text})
		})
	work(a, "checkpoint", "Keep something for the next attempt", http.StatusNoContent, "It has been stored when this is answered.",
		func(ctx context.Context, in *checkpointInput) (*struct{}, error) {
			id, err := in.Body.id()
			if err != nil {
				return nil, err
			}
			return nil, a.ops.Pull().Checkpoint(ctx, who(ctx), in.Body.Worker, id, in.Body.Attempt.Attempt, in.Body.Data)
		})
	work(a, "logs", "Write to the log of an attempt", http.StatusNoContent, "At most 1 MiB of an attempt is kept.", a.logWorker)
	work(a, "leave", "End a worker", http.StatusNoContent, "Runs that it still has are handed back, which uses up no retry.",
		func(ctx context.Context, in *struct {
			Body struct {
				Worker string `json:"worker" maxLength:"300"`
			}
		}) (*struct{}, error) {
			return nil, a.ops.Pull().Leave(ctx, who(ctx), in.Body.Worker)
		})
}

// work adds a route for workers: for tokens of workers, and of admins, who could make themselves one.
func work[I, O any](a *API, verb, summary string, status int, description string, handler func(context.Context, *I) (*O, error)) {
	op := a.rule(ops.Admin, huma.Operation{OperationID: verb + "-worker", Method: http.MethodPost, Path: "/worker/" + verb, Tags: []string{"worker"},
		Summary: summary, Description: description, DefaultStatus: status})
	op.Extensions = map[string]any{"x-role": roleWorker}
	a.work[op.Method+" "+op.Path] = true
	op.MaxBodyBytes, op.BodyReadTimeout = -1, -1
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, problemOf(ctx, a.log, workersProblem(err))
		}
		return out, nil
	})
}

// roleWorker is the role of those who may work, and nothing else.
const roleWorker = "worker"

// workersProblem gives the two refusals that a worker has to tell apart codes of their own.
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

func (a *API) registerWorker(ctx context.Context, in *registerInput) (*struct{ Body Told }, error) {
	b := &in.Body
	w := ops.PullWorker{App: b.App, Name: b.Name, Start: b.Start, Slots: b.Slots, Tags: b.Tags, Host: b.Host, PID: b.PID, Version: b.Version}
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
		w.Has = append(w.Has, ops.PullAttempt{Run: id, Attempt: r.Attempt})
	}
	told, err := a.ops.Pull().Register(ctx, who(ctx), w)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Told }{toldOf(told)}, nil
}

func (a *API) pollWorker(ctx context.Context, in *pollInput) (*struct{ Body Polled }, error) {
	q := ops.PullPoll{Want: max(1, in.Body.Want), Got: in.Body.Got, Wait: longestPoll}
	if in.Body.Wait != nil {
		q.Wait = seconds(*in.Body.Wait)
	}
	got, err := a.ops.Pull().Poll(ctx, who(ctx), in.Body.Worker, q)
	if err != nil {
		return nil, err
	}
	out := Polled{Told: toldOf(got.PullAnswer), Batch: got.Batch, Runs: make([]Work, len(got.Runs))}
	for i, r := range got.Runs {
		out.Runs[i] = Work{Attempt: Attempt{r.ID.String(), r.Run.Attempt}, Job: r.Key, Args: object(r.Args), Due: when(r.Due), Deadline: when(r.Deadline),
			Left: r.Left.Seconds(), Checkpoint: Value(r.Checkpoint), Trace: r.Trace}
		if p := r.Place; p != nil {
			out.Runs[i].Index, out.Runs[i].Total = p.Index, p.Total
		}
	}
	return &struct{ Body Polled }{out}, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func (a *API) heartbeatWorker(ctx context.Context, in *heartbeatInput) (*struct{ Body Told }, error) {
	told, err := a.ops.Pull().Heartbeat(ctx, who(ctx), in.Body.Worker, in.Body.Drain)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Told }{toldOf(told)}, nil
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
		return nil, kernel.Invalid("an attempt ends in one way: give a result, an error, or snoozeSeconds")
	case b.Snooze != nil:
		f.Outcome, f.Delay = kernel.OutcomeSnooze, seconds(*b.Snooze)
	case failed && b.Error == "":
		return nil, kernel.Invalid("code and noRetry are about an error: say which, in error")
	case b.NoRetry:
		f.Outcome = kernel.OutcomeFatal
	case failed:
		f.Outcome = kernel.OutcomeError
	}
	run, err := a.ops.Pull().Finish(ctx, who(ctx), b.Worker, f)
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
	l := ops.PullLog{First: in.Body.First, Lines: make([]ops.PullLine, len(in.Body.Lines))}
	for i, line := range in.Body.Lines {
		if l.Lines[i] = (ops.PullLine{Level: line.Level, Text: line.Text}); line.Level == "" {
			l.Lines[i].Level = "INFO"
		}
	}
	return nil, a.ops.Pull().Log(ctx, who(ctx), in.Body.Worker, id, in.Body.Attempt.Attempt, l)
}
