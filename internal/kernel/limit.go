package kernel

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// DefaultRetryBudget is the default rate limit of a tenant's retries, all jobs together.
var DefaultRetryBudget = jobs.Rate{Max: 100, Per: time.Second}

// ParseRate reads what String writes, and checks it. An empty text means none.
func ParseRate(text string) (r jobs.Rate, err error) {
	if err = r.UnmarshalText([]byte(text)); err == nil {
		err = checkRate(r, "rate")
	}
	return r, err
}

func checkRate(r jobs.Rate, what string) error {
	switch {
	case r == jobs.Rate{}:
		return nil
	case r.Max < 1 || r.Max > MaxConcurrencyTop:
		return Invalid("invalid %s of %d per time: want 1 to %d", what, r.Max, MaxConcurrencyTop)
	case r.Per < time.Millisecond || r.Per > MaxDuration:
		return Invalid("invalid %s per %v: want 1ms to %v", what, r.Per, MaxDuration)
	}
	return nil
}

// rateStep is the time after which one more start is allowed, when the burst is used up.
func rateStep(r jobs.Rate) time.Duration {
	return (r.Per + time.Duration(r.Max) - 1) / time.Duration(r.Max)
}

// rateSpan is the time in which an empty bucket gets all its tokens but the first.
func rateSpan(r jobs.Rate) time.Duration { return time.Duration(r.Max-1) * rateStep(r) }

// rateSpend returns when the next start is allowed after one at a time. opens is when that one was: the rate is a
// bucket of Max tokens, and this single time encodes how full it is.
func rateSpend(r jobs.Rate, opens, at time.Time) time.Time {
	if full := at.Add(-rateSpan(r)); opens.Before(full) {
		opens = full
	}
	return opens.Add(rateStep(r))
}

// Under returns the gate with a limit: itself, or a copy. The state of an old rate means nothing to a new one.
func (g *Gate) Under(l jobs.Limit) *Gate {
	if g.Limit == l.Max && g.Rate == l.Rate {
		return g
	}
	now := *g
	if now.Limit = l.Max; now.Rate != l.Rate {
		now.Rate, now.Opens, now.Admitted = l.Rate, time.Time{}, 0
	}
	return &now
}

// Bound returns the limit of a BoundGate's row.
func (g *Gate) Bound() jobs.Limit { return jobs.Limit{Max: g.Limit, Rate: g.Rate} }

// Free reports whether a run may take a slot now.
func (g *Gate) Free(at time.Time) bool {
	return (g.Limit == 0 || g.Taken < g.Limit) && !g.Throttled(at)
}

// Throttled reports whether the rate keeps runs from taking a slot now, whatever slots are free: each run that has
// taken one and has not started may still need a start of the rate.
func (g *Gate) Throttled(at time.Time) bool {
	return g.Rate.Max > 0 && (g.Admitted >= g.Rate.Max || g.Admits().After(at))
}

// Admits returns when the rate lets the next run take a slot. Zero means: not before another one has started.
func (g *Gate) Admits() time.Time {
	if g.Admitted >= g.Rate.Max {
		return time.Time{}
	}
	return g.Opens.Add(time.Duration(g.Admitted) * rateStep(g.Rate))
}

// Starts reports whether the rate lets a run start now.
func (g *Gate) Starts(at time.Time) bool { return g.Rate.Max == 0 || !g.Opens.After(at) }

// Spend takes one start, now or as soon as it is allowed, and returns when that is.
func (g *Gate) Spend(at time.Time) time.Time {
	if g.Rate.Max == 0 {
		return at
	}
	if g.Opens.After(at) {
		at = g.Opens
	}
	g.Opens = rateSpend(g.Rate, g.Opens, at)
	return at
}

// Unspend takes back one start that Spend took.
func (g *Gate) Unspend() {
	if g.Rate.Max > 0 {
		g.Opens = g.Opens.Add(-rateStep(g.Rate))
	}
}

// Full returns when the whole burst is available again. After that the gate's rate has no state.
func (g *Gate) Full() time.Time {
	if g.Rate.Max == 0 {
		return time.Time{}
	}
	return g.Opens.Add(rateSpan(g.Rate))
}

// Names of gates. A run's gates stand in the order of their names.

// JobGate returns the name of the gate of one job.
func JobGate(job jobs.ID) string { return "job/" + job.String() }

// LimitGate returns the name of the gate of a named limit.
func LimitGate(name string) string { return "limit/" + name }

// AppGate returns the name of the gate of an app.
func AppGate(app string) string { return "app/" + app }

// RetryGate returns the name of the gate that counts the retries of a job, or, with the zero ID, of all jobs. No run
// waits there: a retry gets its start time.
func RetryGate(job jobs.ID) string {
	if job.IsZero() {
		return "retry/"
	}
	return "retry/" + job.String()
}

// CrowdGate returns the name of the row that says which runs of one job at one gate decide about newer ones, if their
// overlap is queue_one or replace. Taken counts those that wait there. Runs, with replace, are all unfinished runs that
// came there, the oldest first. No run takes a slot of it, and it exists only while there are such runs.
func CrowdGate(gate string, job jobs.ID) string { return "crowd/" + job.String() + "/" + gate }

const keyGate = "key/"

// KeyGate returns the name of the gate of one value of a limit by argument.
func KeyGate(name, value string) string {
	if len(value) > 64 || !plain.Is(value) || strings.ContainsFunc(value, unicode.IsControl) || strings.HasPrefix(value, "#") {
		value = "#" + DerivedID("gate", value).String()
	}
	return keyGate + name + "/" + value
}

// BoundGate returns the name of the row with the limit of all values of a limit by argument: the latest one that a job
// set. No run takes a slot there.
func BoundGate(name string) string { return boundGate + name }

const boundGate = "by/"

// BoundOf returns the limit by argument whose BoundGate has this name.
func BoundOf(gate string) (limit string, ok bool) { return strings.CutPrefix(gate, boundGate) }

// Keyed reports whether a gate belongs to one value of an argument: it exists only while a run uses it.
func Keyed(gate string) bool { return strings.HasPrefix(gate, keyGate) }

// KeyOf returns the limit and the value of a keyed gate.
func KeyOf(gate string) (limit, value string, ok bool) {
	rest, ok := strings.CutPrefix(gate, keyGate)
	if !ok {
		return "", "", false
	}
	limit, value, ok = strings.Cut(rest, "/")
	return limit, value, ok
}

// GateOf returns the name of the gate that limits a run with these arguments.
func GateOf(l *jobs.Limit, args []byte) string {
	if l.By == "" {
		return LimitGate(l.Name)
	}
	return KeyGate(l.Name, argument(args, l.By))
}

// argument returns the value of an argument as text: a string's text, or else its JSON. A missing one is the empty
// text, so that leaving it out does not escape the limit.
func argument(args []byte, by string) string {
	raw := json.RawMessage(args)
	for name := range strings.SplitSeq(strings.TrimPrefix(by, "args."), ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return ""
		}
		raw = object[name]
	}
	var plainText string
	if json.Unmarshal(raw, &plainText) == nil {
		return plainText
	}
	var plain bytes.Buffer
	if json.Compact(&plain, raw) != nil {
		return ""
	}
	return plain.String()
}

// CheckAppLimits validates the limits of apps.
func CheckAppLimits(limits []jobs.Limit) error {
	seen := map[string]bool{}
	for _, l := range limits {
		if l.By != "" {
			return Invalid("app limit %s: an app's limit may not be by argument", l.Name)
		}
		if seen[l.Name] {
			return Invalid("app %s has two limits: set one", l.Name)
		}
		seen[l.Name] = true
	}
	if len(limits) > 1000 {
		return Invalid("too many app limits: %d of 1000", len(limits))
	}
	for i := range limits {
		if err := checkLimit(&limits[i], "app limit"); err != nil {
			return err
		}
	}
	return nil
}

func checkLimits(what string, limits []jobs.Limit) error {
	if len(limits) > MaxLimits {
		return Invalid("too many limits: %d of %d", len(limits), MaxLimits)
	}
	for i := range limits {
		if err := checkLimit(&limits[i], what); err != nil {
			return err
		}
	}
	return nil
}

func checkLimit(l *jobs.Limit, what string) error {
	if err := CheckName(what+" name", l.Name); err != nil {
		return err
	}
	if l.Max == 0 && l.Rate.Max == 0 {
		return Invalid("invalid %s %s of 0: want 1 to %d, or a rate", what, l.Name, MaxConcurrencyTop)
	}
	if l.Max < 0 || l.Max > MaxConcurrencyTop {
		return Invalid("invalid %s %s of %d: want 1 to %d", what, l.Name, l.Max, MaxConcurrencyTop)
	}
	if l.By != "" {
		path, ok := strings.CutPrefix(l.By, "args.")
		if !ok || path == "" || len(path) > 200 || !plain.Is(path) || strings.Contains("."+path+".", "..") {
			return Invalid("invalid %s %s by %.40q: want an argument, such as args.customer_id", what, l.Name, l.By)
		}
	}
	return checkRate(l.Rate, "rate of "+what+" "+l.Name)
}
