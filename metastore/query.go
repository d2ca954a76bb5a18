package metastore

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// partChanges is how many definitions EachChange and EachDefinition read at once.
const partChanges = 1000

// EachChange calls fn with the definitions of all tenants whose change number is above since, and with what remains of
// deleted ones: a part at a time, in the order of those numbers. One that changes meanwhile comes again.
func EachChange(ctx context.Context, r Reader, since uint64, fn func([]*kernel.Definition) error) error {
	for {
		part, err := r.Definitions(ctx, DefinitionQuery{Tenant: "*", Changes: true, Since: since, Limit: partChanges})
		if err != nil || len(part) == 0 {
			return err
		}
		if err := fn(part); err != nil {
			return err
		}
		if len(part) < partChanges {
			return nil
		}
		since = part[len(part)-1].Change
	}
}

// EachDefinition calls fn with the jobs of a tenant by key, a part at a time, so that not all of them are in memory.
func EachDefinition(ctx context.Context, r Reader, tenant jobs.Tenant, fn func([]*kernel.Definition) error) error {
	after := jobs.Key("")
	for {
		part, err := r.Definitions(ctx, DefinitionQuery{Tenant: tenant, After: after, Limit: partChanges})
		if err != nil || len(part) == 0 {
			return err
		}
		if err := fn(part); err != nil {
			return err
		}
		if len(part) < partChanges {
			return nil
		}
		after = part[len(part)-1].Key
	}
}

// Matches reports whether a run of the query's tenant passes its filters.
func (q *RunQuery) Matches(run *kernel.Run) bool {
	return (q.State == kernel.New || run.State == q.State) &&
		(q.Job == "" || run.Key == q.Job) &&
		(q.Worker == "" || run.Worker == q.Worker) &&
		(q.Parent.IsZero() || run.Parent == q.Parent) &&
		(q.Batch.IsZero() || run.Batch == q.Batch) &&
		(q.Origin == "" || run.Origin == q.Origin) &&
		(q.Cause == "" || run.Cause == q.Cause) &&
		(q.Code == "" || run.Code() == q.Code) &&
		(q.App == "" || run.App == q.App) &&
		(q.Match == "" || MatchesKey(q.Match, run.Key)) &&
		(q.Jobs == nil || among(q.Jobs, run.Key)) &&
		(q.From.IsZero() || !run.Created.Before(q.From)) &&
		(q.To.IsZero() || run.Created.Before(q.To)) &&
		!slices.ContainsFunc(q.Args, func(a Arg) bool { return !a.mayBeIn(run.Args) || kernel.ArgAt(run.Args, a.Path) != a.Value })
}

// Arg selects runs by an argument: its value, as text.
type Arg struct {
	Path  string `json:"path"` // such as customer.id
	Value string `json:"value"`
}

// mayBeIn reports whether JSON has the value anywhere: mostly it has not, and need not be parsed. A value may be written
// otherwise only with a backslash, or as invalid text.
func (a *Arg) mayBeIn(args []byte) bool {
	return bytes.Contains(args, []byte(a.Value)) || bytes.IndexByte(args, '\\') >= 0 || strings.ContainsRune(a.Value, utf8.RuneError)
}

// ParseArg reads an Arg such as args.customer.id = c7; "args." may be missing.
func ParseArg(text string) (Arg, error) {
	path, value, ok := strings.Cut(text, "=")
	a := Arg{strings.TrimPrefix(strings.TrimSpace(path), "args."), strings.TrimSpace(value)}
	if !ok || a.Path == "" || a.Value == "" || len(text) > maxArg {
		return Arg{}, kernel.Invalid("invalid argument %.60q: want args.customer = c7, of at most %d bytes", text, maxArg)
	}
	return a, nil
}

// MaxArgs is the most arguments in a query.
const MaxArgs = 10

// maxArg is the most bytes of the text of an Arg.
const maxArg = 400

// CheckMatch checks a pattern of job keys, in which * is any text, ? any character, and [a-c] one of some: billing.*
func CheckMatch(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || len(pattern) > 200 {
		return kernel.Invalid("invalid match %.40q: want a pattern of keys such as billing.*, of at most 200 characters", pattern)
	}
	return nil
}

// MatchesKey reports whether a key matches a pattern that CheckMatch accepts.
func MatchesKey(pattern string, key jobs.Key) bool {
	ok, _ := path.Match(pattern, string(key))
	return ok
}

func among(sorted []jobs.Key, key jobs.Key) bool {
	_, found := slices.BinarySearch(sorted, key)
	return found
}

// Past reports that a list of ended runs, last ended first, has no match behind this run: what ended earlier was
// created earlier. Only causes that end at once prove it, because a cancelled run may settle long after its end.
func (q *RunQuery) Past(run *kernel.Run) bool {
	return !q.From.IsZero() && run.Ended.Before(q.From) && (run.State == jobs.Succeeded || run.State == jobs.Skipped)
}

// Size is how many rows the query's page has at most.
func (q *RunQuery) Size() int {
	if q.Limit <= 0 {
		return 50
	}
	return min(q.Limit, MaxPage)
}
