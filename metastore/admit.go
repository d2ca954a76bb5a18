package metastore

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// What is settled before a commit, at its edge. Behind it, Apply can rely on Envelope.Check, replicas of two versions
// cannot disagree about it, and the rows need not remember for ever which runs there were.

// Checked keeps envelopes that are wrong by themselves away from apply, which gets a copy of the others, and puts
// the answers together again.
func Checked(batch []jobs.Envelope, apply func([]jobs.Envelope) []Result) []Result {
	return sieve(batch, checked, apply)
}

// Admitted is Checked for whoever commits at now. It also answers a Create or a Notify that is repeated after its run has left
// the live rows, where its name stays for a minute, with that run: whoever repeats himself a day later, from an outbox
// say, gets no second run either.
func Admitted(ctx context.Context, r Reader, now time.Time, batch []jobs.Envelope, apply func([]jobs.Envelope) []Result) []Result {
	return sieve(batch, func(e *jobs.Envelope) (Result, bool) {
		if answer, done := checked(e); done {
			return answer, true
		}
		var id jobs.ID
		var key jobs.Key
		switch k := e.Command.(type) {
		case jobs.Create:
			id, key = k.ID, k.Key
		case jobs.Notify:
			id, key = k.ID(e.Tenant), k.Key()
		default:
			return Result{}, false
		}
		if justMade(id, now) {
			return Result{}, false
		}
		in, err := r.Instance(ctx, e.Tenant, id)
		switch {
		case jobs.CodeOf(err) == jobs.NotFound:
			return Result{}, false
		case err != nil:
			return Result{Err: jobs.Refuse(jobs.Unavailable, "not done: it is not known whether run %s exists: %v", id, err)}, true
		case in.Key != key:
			return Result{Err: jobs.Refuse(jobs.Conflict, "run %s exists and belongs to job %s, not %s", id, in.Key, key)}, true
		}
		return Result{Effect: jobs.Effect{Instances: []*jobs.Instance{in}, Existing: true}}, true
	}, apply)
}

// Sieved answers envelopes that check refuses, passes a copy of the others to apply, and puts the answers together again.
func Sieved(batch []jobs.Envelope, check func(*jobs.Envelope) error, apply func([]jobs.Envelope) []Result) []Result {
	return sieve(batch, func(e *jobs.Envelope) (Result, bool) {
		err := check(e)
		return Result{Err: err}, err != nil
	}, apply)
}

func checked(e *jobs.Envelope) (Result, bool) {
	err := e.Check()
	return Result{Err: err}, err != nil
}

// justMade says that an ID was made so short a time ago that a run of that name would still be known to the live rows.
// It is a hint that saves looking up new names in the archive: an ID from a clock that is wrong, or not made by
// jobs.NewID, is looked up.
func justMade(id jobs.ID, now time.Time) bool {
	made, ok := id.Made()
	age := now.Sub(made)
	return ok && age > -time.Second && age < 30*time.Second
}

// sieve answers what settled can answer, passes a copy of the rest to apply, and puts the answers together.
func sieve(batch []jobs.Envelope, settled func(*jobs.Envelope) (Result, bool), apply func([]jobs.Envelope) []Result) []Result {
	rest := make([]jobs.Envelope, 0, len(batch))
	var places []int // of the rest, once something was answered
	var results []Result
	for i := range batch {
		if answer, done := settled(&batch[i]); done {
			if results == nil {
				results = make([]Result, len(batch))
				for j := range i {
					places = append(places, j)
				}
			}
			results[i] = answer
			continue
		}
		rest = append(rest, batch[i])
		if results != nil {
			places = append(places, i)
		}
	}
	if len(rest) == 0 {
		return results
	}
	answers := apply(rest)
	if results == nil {
		return answers
	}
	for j, i := range places {
		results[i] = answers[j]
	}
	return results
}
