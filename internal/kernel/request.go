package kernel

import "github.com/carillon-scheduler/carillon/jobs"

// CreateOf is the command for a request.
func CreateOf(r jobs.Request) Create {
	return Create{ID: r.ID, Key: r.Key, Args: r.Args, Due: Instant(r.Due), Delay: r.Delay, Unique: r.Unique, UniqueFor: r.UniqueFor,
		Idempotency: r.Idempotency, Origin: FromCode, Priority: r.Priority, Retries: r.Retries, Timeout: r.Timeout, StartWithin: r.StartWithin, Pin: r.Worker}
}
