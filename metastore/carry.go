package metastore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Content is all that a store has at one moment, to be saved or copied to another. Its parts may be read any number
// of times, one at a time.
type Content interface {
	// Rows are all rows except finished runs. The live runs of a tenant come in the order of their creation. Runs
	// that ended within KeepFinal are among them by name alone; their Ended is about when they ended.
	Rows(ctx context.Context) iter.Seq2[kernel.Row, error]
	// Ended are the finished runs, in the order in which they ended.
	Ended(ctx context.Context) iter.Seq2[*kernel.Run, error]
	// Lines are the log lines of handlers. The lines of a run come together, in their order.
	Lines(ctx context.Context) iter.Seq2[LogLine, error]
}

// Fill puts content into an empty store: whole, or, if it returns an error, not at all. Before it commits it calls
// check with what it has written, as it can be read back.
type Fill func(ctx context.Context, from Content, check func(Content) error) error

// Carry copies content to an empty store, and compares what can be read there with the original. The term is raised
// by one, so that no leader of the old store can fire in the new one. progress, if not nil, gets now and then how
// many rows have been read, written and read again so far.
func Carry(ctx context.Context, from Content, fill Fill, progress func(Step)) (Account, error) {
	source := Count(raised{from})
	if progress != nil {
		source.progress = func(n int64) { progress(Step{"carried", n}) }
	}
	err := fill(ctx, source, func(to Content) error {
		there := Count(to)
		if progress != nil {
			there.progress = func(n int64) { progress(Step{"read back", n}) }
		}
		if err := there.read(ctx); err != nil {
			return fmt.Errorf("read back the copy: %w", err)
		}
		if given, found := source.Account(), there.Account(); !maps.Equal(given, found) {
			return fmt.Errorf("the copy differs from the original: %s", given.Differences(found))
		}
		return nil
	})
	return source.Account(), err
}

// raised is content with a term that is one higher, and no leader.
type raised struct{ Content }

func (r raised) Rows(ctx context.Context) iter.Seq2[kernel.Row, error] {
	return func(yield func(kernel.Row, error) bool) {
		for row, err := range r.Content.Rows(ctx) {
			if state, ok := row.(*kernel.StoreRow); ok && err == nil {
				next := *state
				next.Term, next.Leader = next.Term+1, ""
				row = &next
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// Step is the progress of a copy.
type Step struct {
	What string // "carried" or "read back"
	Rows int64  // so far
}

// LeftOut is the error about a finished run that cannot be read, in the place of that run. What comes after it can be
// read: only a backup continues without it, and reports it.
type LeftOut struct{ Err error }

func (l *LeftOut) Error() string { return l.Err.Error() }
func (l *LeftOut) Unwrap() error { return l.Err }

// Take reads content once, and returns its account.
func Take(ctx context.Context, c Content) (Account, error) {
	all := Count(c)
	err := all.read(ctx)
	return all.Account(), err
}

// Account is how much content there is of each kind: jobs, live runs, log lines .... Two stores with the same account
// have the same content.
type Account map[string]Sum

// Sum is a number of rows, and a fingerprint of them in any order.
type Sum struct {
	Count int64
	Hash  [sha256.Size / 8]uint64
}

func (s *Sum) add(b []byte) {
	s.Count++
	h := sha256.Sum256(b)
	for i := range s.Hash {
		s.Hash[i] += binary.LittleEndian.Uint64(h[8*i:])
	}
}

// Counts returns the number of rows of each kind, by its name for users.
func (a Account) Counts() map[string]int64 {
	counts := map[string]int64{}
	for what, sum := range a {
		counts[shown(what)] = sum.Count
	}
	return counts
}

// String lists the kinds and their numbers.
func (a Account) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(a)) {
		parts = append(parts, fmt.Sprintf("%d %s", a[what].Count, shown(what)))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Differences returns in which counts and fingerprints two accounts differ; "" = in none.
func (a Account) Differences(b Account) string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(both)) {
		switch given, found := a[what], b[what]; {
		case given.Count != found.Count:
			parts = append(parts, fmt.Sprintf("%d %s are %d", given.Count, shown(what), found.Count))
		case given != found:
			parts = append(parts, fmt.Sprintf("%d %s differ", given.Count, shown(what)))
		}
	}
	return strings.Join(parts, ", ")
}

// kindNames are the kinds of rows in an Account. Backups store them as keys: they never change, see shown.
var kindNames = map[kernel.RowKind]string{
	kernel.RowDefinition: "jobs", kernel.RowRun: "live runs", kernel.RowGate: "limits in use", kernel.RowUnique: "unique keys", kernel.RowMissed: "missed ranges",
	kernel.RowTally: "tallies", kernel.RowGlobal: "tenants' settings", kernel.RowToken: "tokens", kernel.RowSession: "sessions", kernel.RowAudit: "audits",
}

const (
	endedName   = "runs that are over" // stored in backups as a key, see shown
	leftOutName = "damaged runs left out"
	linesName   = "log lines"
)

// shown is the name of a kind in an Account, for users. The keys of later kinds have a number.
func shown(what string) string {
	var kind kernel.RowKind
	if _, err := fmt.Sscanf(what, kindNumber, &kind); err == nil {
		return kind.String()
	}
	if what == endedName {
		return "finished runs"
	}
	return what
}

const kindNumber = "rows of kind %d"

// Counted is content that is counted as it is read.
type Counted struct {
	Content
	rows, ended, lines Account // of the last time
	progress           func(int64)
	n                  int64
}

// Count counts content as it is read.
func Count(c Content) *Counted { return &Counted{Content: c, progress: func(int64) {}} }

// progressEvery is how many rows lie between two reports of progress.
const progressEvery = 1_000

func (c *Counted) note(a Account, what string, b []byte) {
	s := a[what]
	s.add(b)
	a[what] = s
	if c.n++; c.n%progressEvery == 0 {
		c.progress(c.n)
	}
}

// Account is what each part contained when it was last read.
func (c *Counted) Account() Account {
	all := Account{}
	for _, part := range []Account{c.rows, c.ended, c.lines} {
		maps.Copy(all, part)
	}
	return all
}

// read reads all of it.
func (c *Counted) read(ctx context.Context) error {
	for _, err := range c.Rows(ctx) {
		if err != nil {
			return err
		}
	}
	for _, err := range c.Ended(ctx) {
		if err != nil {
			return err
		}
	}
	for _, err := range c.Lines(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// Rows counts all rows but those that a store keeps about itself, and the names of finished runs.
func (c *Counted) Rows(ctx context.Context) iter.Seq2[kernel.Row, error] {
	return func(yield func(kernel.Row, error) bool) {
		c.rows = Account{}
		var b []byte
		for row, err := range c.Content.Rows(ctx) {
			if err == nil {
				switch r := row.(type) {
				case *kernel.StoreRow:
				case *kernel.Run:
					if !r.Settled() {
						b = kernel.AppendRow(b[:0], r)
						c.note(c.rows, kindNames[kernel.RowRun], b)
					}
				default:
					b = kernel.AppendRow(b[:0], row)
					c.note(c.rows, kindName(row.Ref().Kind), b)
				}
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

func kindName(k kernel.RowKind) string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf(kindNumber, k)
}

// Ended counts finished runs; those of a tenant with their place in its history. It also counts those that are left
// out.
func (c *Counted) Ended(ctx context.Context) iter.Seq2[*kernel.Run, error] {
	return func(yield func(*kernel.Run, error) bool) {
		c.ended = Account{}
		place := map[jobs.Tenant]uint64{}
		var b []byte
		for run, err := range c.Content.Ended(ctx) {
			if err == nil {
				place[run.Tenant]++
				b = kernel.AppendRow(binary.AppendUvarint(b[:0], place[run.Tenant]), run)
				c.note(c.ended, endedName, b)
			}
			lost, left := errors.AsType[*LeftOut](err)
			if left {
				c.note(c.ended, leftOutName, []byte(lost.Error()))
			}
			if !yield(run, err) || err != nil && !left {
				return
			}
		}
	}
}

// Lines counts log lines.
func (c *Counted) Lines(ctx context.Context) iter.Seq2[LogLine, error] {
	return func(yield func(LogLine, error) bool) {
		c.lines = Account{}
		var b []byte
		for line, err := range c.Content.Lines(ctx) {
			if err == nil {
				b = line.Append(b[:0])
				c.note(c.lines, linesName, b)
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}
