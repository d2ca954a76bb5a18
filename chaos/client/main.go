// Command client is a client of the chaos driver: it asks for runs over the bus and over the API, asks again under the
// same key without a response, cancels some, pauses, resumes and edits jobs, and records the responses.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// orders is the client's configuration, as JSON in the environment.
type orders struct {
	URL   string   // of the bus
	APIs  []string // of the nodes, as host:port
	Name  string
	Dir   string // of the history
	Seed  uint64
	Rate  int          // requests a second
	Specs []judge.Spec // of triggered jobs
	Mine  []judge.Spec // recurring jobs that only this client pauses and edits
}

// task is what the workers are asked to do.
type task struct {
	Millis   int  `json:"millis,omitempty"`
	Fail     int  `json:"fail,omitempty"`
	Stubborn bool `json:"stubborn,omitempty"`
}

// patience is how long a request without a response is repeated.
const patience = 2 * time.Minute

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type client struct {
	orders
	history *judge.Writer
	bus     interface {
		jobs.Caller
		Close() error
	}
	http   *http.Client
	asking sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	runs   []string // of late, to be cancelled
	n      int
}

func run() error {
	c := &client{http: &http.Client{Timeout: 10 * time.Second}}
	if err := json.Unmarshal([]byte(os.Getenv("CHAOS_CLIENT")), &c.orders); err != nil {
		return fmt.Errorf("CHAOS_CLIENT: %w", err)
	}
	c.random = rand.New(rand.NewPCG(c.Seed, 3))
	var err error
	if c.history, err = judge.Open(c.Dir, judge.HistoryFile(fmt.Sprintf("%s-%d", c.Name, os.Getpid()))); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for c.bus == nil {
		if c.bus, err = carillon.Dial(c.URL); err != nil {
			fmt.Fprintln(os.Stderr, err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
			}
		}
	}
	defer c.bus.Close()
	for _, s := range c.Mine {
		c.asking.Go(func() { c.bother(ctx, s) })
	}
	tick := time.NewTicker(time.Second / time.Duration(max(c.Rate, 1)))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			c.asking.Go(c.next()) // the next one does not wait for the response
		}
	}
	c.asking.Wait() // what was asked for gets its answer
	return nil
}

func (c *client) chance(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// any is one of the runs of late, "" if there is none.
func (c *client) any() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.runs) == 0 {
		return ""
	}
	return c.runs[c.random.IntN(len(c.runs))]
}

// next returns the next operation.
func (c *client) next() func() {
	if what := c.chance(15); what < 3 {
		if id := c.any(); id != "" && what == 0 {
			return func() { c.cancel(id) }
		} else if id != "" {
			return func() { c.look(id) }
		}
	}
	s := c.Specs[c.chance(len(c.Specs))]
	c.mu.Lock()
	c.n++
	op := judge.Op{What: judge.Create, Key: s.Key, Idempotency: fmt.Sprintf("%s-%d-%d", c.Name, os.Getpid(), c.n)}
	c.mu.Unlock()
	t := task{Millis: int(s.Typical.Milliseconds()) * (50 + c.chance(100)) / 100}
	if s.Retries > 0 {
		t.Fail = c.chance(s.Retries + 1)
	}
	switch c.chance(10) {
	case 0, 1: // an even number of milliseconds, which every store can keep
		op.Due = time.Now().Add(time.Duration(200+c.chance(8000)) * time.Millisecond).Truncate(time.Millisecond).UnixNano()
	case 2:
		op.Unique = fmt.Sprintf("u%d", c.chance(20))
	case 3:
		t.Stubborn = true
	}
	over := c.overBus
	if c.chance(2) == 0 {
		over = c.overAPI
	}
	return func() { c.create(op, t, over) }
}

// create asks until there is an answer.
func (c *client) create(op judge.Op, t task, over func(op *judge.Op, t task)) {
	for deadline, wait := time.Now().Add(patience), 100*time.Millisecond; ; wait = min(2*wait, 3*time.Second) {
		this := op
		this.Client, this.Invoked = c.Name, judge.Now()
		over(&this, t)
		c.write(this)
		if this.Outcome == judge.OK {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.runs = append(c.runs, this.Run); len(c.runs) > 100 {
				c.runs = c.runs[50:]
			}
			return
		}
		if time.Now().After(deadline) {
			return
		}
		time.Sleep(wait)
	}
}

func (c *client) write(op judge.Op) {
	op.Returned = judge.Now()
	if err := c.history.Write(op); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (c *client) overBus(op *judge.Op, t task) {
	request, err := jobs.Trigger[task](op.Key).Request(t)
	if err != nil {
		op.Outcome, op.Text = judge.Refused, err.Error()
		return
	}
	request.Idempotency, request.Unique = op.Idempotency, op.Unique
	if op.Due != 0 {
		request.Due = kernel.Instant(time.Unix(0, op.Due))
	}
	op.RequestID = request.ID.String()
	runs, err := c.bus.Enqueue(context.Background(), request)
	if err != nil {
		op.Outcome, op.Text = judge.Unknown, err.Error()
		if code := jobs.CodeOf(err); code != jobs.Unknown && code != jobs.Unavailable {
			op.Outcome = judge.Refused
		}
		return
	}
	op.Outcome, op.Run, op.Duplicate = judge.OK, runs[0].ID.String(), runs[0].Duplicate
}

func (c *client) overAPI(op *judge.Op, t task) {
	body := map[string]any{"args": t}
	if op.Due != 0 {
		body["due"] = time.Unix(0, op.Due).UTC()
	}
	if op.Unique != "" {
		body["unique"] = op.Unique
	}
	var run struct {
		ID        string `json:"id"`
		Duplicate bool   `json:"duplicate"`
	}
	c.ask(op, http.MethodPost, "/jobs/"+op.Key+"/trigger", body, &run)
	op.Run, op.Duplicate = run.ID, run.Duplicate
}

// ask sends a request to one of the nodes, and returns its outcome.
func (c *client) ask(op *judge.Op, method, path string, body, into any) {
	var sent io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			op.Outcome, op.Text = judge.Refused, err.Error()
			return
		}
		sent = bytes.NewReader(raw)
	}
	r, err := http.NewRequest(method, "http://"+c.APIs[c.chance(len(c.APIs))]+"/api/v1"+path, sent)
	if err != nil {
		op.Outcome, op.Text = judge.Refused, err.Error()
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("If-Match", "*")
	if op.Idempotency != "" {
		r.Header.Set("Idempotency-Key", op.Idempotency)
	}
	a, err := c.http.Do(r)
	if err != nil {
		op.Outcome, op.Text = judge.Unknown, err.Error()
		return
	}
	defer a.Body.Close()
	answer, err := io.ReadAll(a.Body)
	switch {
	case a.StatusCode >= 500 && a.StatusCode != http.StatusServiceUnavailable:
		op.Outcome, op.Text = judge.Unknown, fmt.Sprintf("%d %.300s", a.StatusCode, answer)
	case a.StatusCode >= 300:
		op.Outcome, op.Text = judge.Refused, fmt.Sprintf("%d %.300s", a.StatusCode, answer)
	case err != nil:
		op.Outcome, op.Text = judge.Unknown, err.Error()
	default:
		op.Outcome = judge.OK
		if err := json.Unmarshal(answer, into); err != nil {
			op.Outcome, op.Text = judge.Unknown, err.Error()
		}
	}
}

func (c *client) cancel(id string) {
	op := judge.Op{What: judge.Cancel, Client: c.Name, Run: id, Invoked: judge.Now()}
	var run struct{}
	c.ask(&op, http.MethodPost, "/runs/"+id+"/cancel", struct{}{}, &run)
	c.write(op)
}

// look asks any node how a run is.
func (c *client) look(id string) {
	op := judge.Op{What: judge.Look, Client: c.Name, Run: id, Invoked: judge.Now()}
	var run struct {
		State   string `json:"state"`
		Attempt uint32 `json:"attempt"`
	}
	c.ask(&op, http.MethodGet, "/runs/"+id, nil, &run)
	op.State, op.Attempt = run.State, run.Attempt
	c.write(op)
}

// bother pauses, resumes and edits a job, again and again, and leaves it as it was.
func (c *client) bother(ctx context.Context, s judge.Spec) {
	schedules := []string{s.Schedule, "*/2 * * * * *", "1-59/3 * * * * *"}
	now := s
	pausing := false
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(2000+c.chance(6000)) * time.Millisecond):
		}
		switch {
		case ctx.Err() != nil:
		case pausing:
			c.insist(judge.Op{What: judge.Resume, Key: s.Key}, http.MethodPost, "/resume", struct{}{})
			pausing = false
		case c.chance(2) == 0:
			c.insist(judge.Op{What: judge.Pause, Key: s.Key}, http.MethodPost, "/pause", struct{}{})
			pausing = true
		default:
			now.Schedule = schedules[c.chance(len(schedules))]
			spec := now
			c.insist(judge.Op{What: judge.Edit, Key: s.Key, Spec: &spec}, http.MethodPatch, "", map[string]any{"schedule": now.Schedule})
		}
	}
	if pausing {
		c.insist(judge.Op{What: judge.Resume, Key: s.Key}, http.MethodPost, "/resume", struct{}{})
	}
}

// insist asks until there is an answer: what a job is meant to be must be known to the judge.
func (c *client) insist(op judge.Op, method, path string, body any) {
	for deadline := time.Now().Add(patience); ; time.Sleep(300 * time.Millisecond) {
		this := op
		this.Client, this.Invoked = c.Name, judge.Now()
		var job struct{}
		c.ask(&this, method, "/jobs/"+op.Key+path, body, &job)
		c.write(this)
		if this.Outcome == judge.OK || time.Now().After(deadline) {
			return
		}
	}
}
