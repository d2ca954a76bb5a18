package worker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
)

// State is whether a worker accepts runs.
type State string

// The states of a worker.
const (
	Starting     State = "starting"     // its jobs are not registered yet
	Ready        State = "ready"        // it accepts runs
	Disconnected State = "disconnected" // no control plane answered its last heartbeat; its runs continue
	Drained      State = "drained"      // it was asked to accept no new runs, and can be resumed
	Leaving      State = "leaving"      // the ctx of Run has ended: it finishes its runs
	Stopped      State = "stopped"      // Run has returned
)

// Status is what a worker knows about itself. It has no arguments, results, logs or texts of errors.
type Status struct {
	Tenant    jobs.Tenant
	App, Name string // Name is that of Worker.Name
	Version   string // of this library
	Started   time.Time
	State     State
	Heartbeat time.Time // when a control plane answered a heartbeat; zero = never
	Slots     int       // as configured; 0 = no limit
	Stats     Stats
	Jobs      []JobStatus
	Running   []Attempt // the oldest first
	Recent    []Attempt // those that ended lately, at most 50, the newest first
}

// JobStatus is a job as the program declares it. Edits on the server override these settings, and are not known here.
type JobStatus struct {
	Key      jobs.Key
	Name     string
	Kind     string // recurring or triggered
	Version  int
	Schedule string
	TimeZone string
	// Next is the first due time from now on by Schedule; zero if only the server knows it, for example because an
	// interval counts from the creation of the job.
	Next           time.Time
	Timeout        time.Duration // 0 = none
	MaxConcurrency int           // 0 = no limit
	Retries        int
	Served         bool // false = its Init failed: see the log
}

// Attempt is an attempt of a run in a worker.
type Attempt struct {
	Run      jobs.ID
	Key      jobs.Key
	Number   uint32
	Started  time.Time // when the worker accepted it
	Deadline time.Time // when it times out; zero = never
	Returned time.Time // when its handler returned; zero = it has not
	Progress Progress  // what its handler reported last
	Stuck    bool      // its context ended more than 10 s ago, and its handler has not returned
	// Outcome is "" until the attempt is finished and reported. Then it is one of Stats.Finished, or "cancelled", "lost"
	// (its lease) or "unknown" (no answer of the store).
	Outcome string
	Code    string // of its error, as jobs.Fail set it
}

// Progress is the last call of jobs.Progress.
type Progress struct {
	Done, Total int64 // Total 0 = unknown
	Text        string
}

// Status returns what the worker is doing. It may be called at any time.
func (w *Worker) Status() Status {
	s := Status{
		Tenant: w.config.Tenant, App: w.config.App, Name: w.name, Version: LibraryVersion(), Started: w.started,
		State: w.state(), Slots: w.config.slots(), Stats: w.Stats(), Jobs: make([]JobStatus, len(w.given)),
	}
	_, s.Heartbeat = w.leader.contact()
	s.Running, s.Recent = w.held.attemptsNow()
	now := time.Now()
	for i := range w.given {
		s.Jobs[i] = w.jobStatus(&w.given[i], now)
	}
	return s
}

func (w *Worker) state() State {
	answers, _ := w.leader.contact()
	switch {
	case w.ended.Load():
		return Stopped
	case w.held.isClosed():
		return Leaving
	case !w.ready.Load():
		return Starting
	case !answers:
		return Disconnected
	case w.held.isResting():
		return Drained
	}
	return Ready
}

func (w *Worker) jobStatus(d *kernel.Declaration, now time.Time) JobStatus {
	def := kernel.Definition{Tenant: w.config.Tenant, Key: d.Key, Kind: d.Kind, Code: d.Code}
	def.Policy = def.Resolve(&kernel.Global{})
	p := &def.Policy
	w.faulty.Lock()
	_, fault := w.faults[d.Key]
	w.faulty.Unlock()
	return JobStatus{
		Key: d.Key, Name: p.Name, Kind: d.Kind.String(), Version: d.Version, Schedule: p.Schedule, TimeZone: p.Zone,
		Next: nextOf(def, now), Timeout: p.Timeout, MaxConcurrency: p.MaxConcurrency, Retries: p.Retries, Served: !fault,
	}
}

// nextOf returns the next due time of a job if it does not depend on what only the server knows: calendars, and when
// the job was created.
func nextOf(def kernel.Definition, now time.Time) time.Time {
	if def.Policy.Schedule == "" || def.Policy.Disabled || len(def.Policy.Calendars) > 0 || def.Policy.TTL > 0 {
		return time.Time{}
	}
	var due [2]time.Time
	for i := range due {
		def.Anchor = now.Add(-time.Duration(i)) // a due time that moves by a nanosecond counts from the creation
		s, err := timetable.Schedule(&def)
		if err != nil {
			return time.Time{}
		}
		due[i], _ = s.Next(now)
	}
	if !due[0].Equal(due[1]) {
		return time.Time{}
	}
	return due[0]
}

// mostRecent bounds the ended attempts that a worker remembers.
const mostRecent = 50

// recent are the attempts that ended last.
type recent struct {
	ring [mostRecent]Attempt
	n    uint64 // how many there were
}

func (r *recent) add(a *attempt) {
	line := &r.ring[r.n%mostRecent]
	r.n++
	a.describe(line)
	if line.Returned.IsZero() {
		line.Returned = time.Now()
	}
	line.Outcome, line.Code = a.howEnded(), a.finish.Code
}

// newestFirst returns what is remembered.
func (r *recent) newestFirst() []Attempt {
	list := make([]Attempt, 0, min(r.n, mostRecent))
	for i := r.n; i > 0 && len(list) < mostRecent; i-- {
		list = append(list, r.ring[(i-1)%mostRecent])
	}
	return list
}

// describe writes what a page shows of an attempt. Call it with held.mu held.
func (a *attempt) describe(to *Attempt) {
	*to = Attempt{Run: a.ID, Key: a.key, Number: a.Attempt, Started: a.accepted, Deadline: a.deadline(), Returned: a.leftAt}
	a.mu.Lock()
	defer a.mu.Unlock()
	to.Stuck = a.stuck
	if p := a.progress; p != nil {
		to.Progress = Progress{p.Done, p.Total, p.Text}
	}
}

// howEnded returns the outcome of an attempt that is being forgotten.
func (a *attempt) howEnded() string {
	a.mu.Lock()
	ended := a.ended
	a.mu.Unlock()
	_, cancelled := errors.AsType[*jobs.CancelledError](ended)
	switch {
	case a.unknown:
		return "unknown"
	case cancelled || ended != nil && jobs.CodeOf(ended) == jobs.Conflict:
		return "cancelled"
	case errors.Is(ended, jobs.ErrLeaseLost):
		return "lost"
	case errors.Is(ended, jobs.ErrTimeout):
		return kernel.OutcomeTimeout.String()
	case a.finish.Outcome == 0:
		return "lost"
	}
	return a.finish.Outcome.String()
}

// attemptsNow returns the attempts that are held, and those that ended lately.
func (h *held) attemptsNow() (now, before []Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.attempts {
		now = append(now, Attempt{})
		a.describe(&now[len(now)-1])
	}
	slices.SortFunc(now, func(a, b Attempt) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Run.String(), b.Run.String()))
	})
	return now, h.recent.newestFirst()
}
