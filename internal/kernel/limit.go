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

// DefaultRetryBudget is how often the runs of a tenant may be tried again, all jobs together, if nobody says otherwise.
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
		return Invalid("%s is %d per time, it must be between 1 and %d", what, r.Max, MaxConcurrencyTop)
	case r.Per < time.Millisecond || r.Per > MaxDuration:
		return Invalid("%s is per %v, it must be between 1ms and %v", what, r.Per, MaxDuration)
	}
	return nil
}

// rateStep is the time after which one more may happen, when all that may happen at once has.
func rateStep(r jobs.Rate) time.Duration {
	return (r.Per + time.Duration(r.Max) - 1) / time.Duration(r.Max)
}

// rateSpend is when the next one may happen after one has happened at a time. opens is when that one might: the rate is a
// bucket of Max tokens, of which this single time tells how full it is.
func rateSpend(r jobs.Rate, opens, at time.Time) time.Time {
	if full := at.Add(rateStep(r) - r.Per); opens.Before(full) {
		opens = full
	}
	return opens.Add(rateStep(r))
}

// Under is the gate as it holds to a limit: itself, or a copy with that limit. What an old rate remembered means nothing
// to a new one.
func (g *Gate) Under(l jobs.Limit) *Gate {
	if g.Limit == l.Max && g.Rate == l.Rate {
		return g
	}
	now := *g
	if now.Limit = l.Max; now.Rate != l.Rate {
		now.Rate, now.Opens = l.Rate, time.Time{}
	}
	return &now
}

// Bound is the limit that the row of a BoundGate stands for.
func (g *Gate) Bound() jobs.Limit { return jobs.Limit{Max: g.Limit, Rate: g.Rate} }

// Free says that a run may take a slot now.
func (g *Gate) Free(at time.Time) bool {
	return (g.Limit == 0 || g.Taken < g.Limit) && !g.Shut(at)
}

// Shut says that only the rate keeps runs from starting now, whatever slots there are.
func (g *Gate) Shut(at time.Time) bool { return g.Rate.Max > 0 && g.Opens.After(at) }

// Spend takes one from what may happen, now or as soon as it may, and answers with when that is.
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

// Full is when all that may happen at once may happen again. A gate of which that is over remembers nothing.
func (g *Gate) Full() time.Time {
	if g.Rate.Max == 0 {
		return time.Time{}
	}
	return g.Opens.Add(g.Rate.Per - rateStep(g.Rate))
}

// Names of gates. A run's gates stand in the order of their names.

// JobGate is the name of the gate of one job.
func JobGate(job jobs.ID) string { return "job/" + job.String() }

// LimitGate is the name of the gate of a named limit.
func LimitGate(name string) string { return "limit/" + name }

// AppGate is the name of the gate of an app.
func AppGate(app string) string { return "app/" + app }

// RetryGate is the name of what counts the retries of a job, or, of the zero ID, of all jobs. Nobody waits there: a
// retry is given its time.
func RetryGate(job jobs.ID) string {
	if job.IsZero() {
		return "retry/"
	}
	return "retry/" + job.String()
}

// CrowdGate is the name of the row that says which runs of one job at one gate decide what becomes of newer ones, if
// their overlap is queue_one or replace. Taken counts those that wait there. Runs, with replace, are all that came there
// and are not final, the oldest first. Nobody takes a slot of it, and it is there only while there are such runs.
func CrowdGate(gate string, job jobs.ID) string { return "crowd/" + job.String() + "/" + gate }

const keyGate = "key/"

// KeyGate is the name of the gate of one value of a limit by argument.
func KeyGate(name, value string) string {
	if len(value) > 64 || !plain.Is(value) || strings.ContainsFunc(value, unicode.IsControl) || strings.HasPrefix(value, "#") {
		value = "#" + DerivedID("gate", value).String()
	}
	return keyGate + name + "/" + value
}

// BoundGate is the name of the row that says what holds for all values of a limit by argument: what was said last,
// by whichever job. Nobody takes a slot there.
func BoundGate(name string) string { return boundGate + name }

const boundGate = "by/"

// BoundOf is the limit by argument whose BoundGate has this name.
func BoundOf(gate string) (limit string, ok bool) { return strings.CutPrefix(gate, boundGate) }

// Keyed says that a gate belongs to one value of an argument: it is there only while somebody uses it.
func Keyed(gate string) bool { return strings.HasPrefix(gate, keyGate) }

// KeyOf is the limit and the value that a keyed gate stands for.
func KeyOf(gate string) (limit, value string, ok bool) {
	rest, ok := strings.CutPrefix(gate, keyGate)
	if !ok {
		return "", "", false
	}
	limit, value, ok = strings.Cut(rest, "/")
	return limit, value, ok
}

// GateOf is the name of the gate at which a run with these arguments is held to a limit.
func GateOf(l *jobs.Limit, args []byte) string {
	if l.By == "" {
		return LimitGate(l.Name)
	}
	return KeyGate(l.Name, argument(args, l.By))
}

// argument is the value of an argument as text: of a text what it says, of anything else its JSON. What is not there is
// the empty text, so that nobody escapes a limit by leaving something out.
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

// CheckAppLimits says what is wrong with the limits of apps.
func CheckAppLimits(limits []jobs.Limit) error {
	seen := map[string]bool{}
	for _, l := range limits {
		if l.By != "" {
			return Invalid("app limit %s: a limit of an app is not by argument", l.Name)
		}
		if seen[l.Name] {
			return Invalid("app %s has two limits: give one", l.Name)
		}
		seen[l.Name] = true
	}
	if len(limits) > 1000 {
		return Invalid("app limits: %d given, at most 1000 are allowed", len(limits))
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
		return Invalid("limits: %d given, at most %d are allowed", len(limits), MaxLimits)
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
		return Invalid("%s %s is 0, it must be between 1 and %d, or have a rate", what, l.Name, MaxConcurrencyTop)
	}
	if l.Max < 0 || l.Max > MaxConcurrencyTop {
		return Invalid("%s %s is %d, it must be between 1 and %d", what, l.Name, l.Max, MaxConcurrencyTop)
	}
	if l.By != "" {
		path, ok := strings.CutPrefix(l.By, "args.")
		if !ok || path == "" || len(path) > 200 || !plain.Is(path) || strings.Contains("."+path+".", "..") {
			return Invalid("%s %s is by %.40q: it must name an argument, such as args.customer_id", what, l.Name, l.By)
		}
	}
	return checkRate(l.Rate, "rate of "+what+" "+l.Name)
}
