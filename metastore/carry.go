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

// Content is all that a store holds at one moment, to be written down or carried to another. Its parts may be gone
// through any number of times, one at a time.
type Content interface {
	// Rows are all rows but those of runs that are over. The live runs of a tenant come in the order of their creation.
	// Runs that ended within KeepFinal are among them by name alone; their Ended is when that was, about.
	Rows(ctx context.Context) iter.Seq2[kernel.Row, error]
	// Ended are the runs that are over, in the order in which they ended.
	Ended(ctx context.Context) iter.Seq2[*kernel.Run, error]
	// Lines are what handlers wrote. The lines of a run come together, in their order.
	Lines(ctx context.Context) iter.Seq2[LogLine, error]
}

// Fill puts content into an empty store: whole, or, if it answers with an error, not at all. Before anything counts it
// calls check with what it has written, as it can be read back.
type Fill func(ctx context.Context, from Content, check func(Content) error) error

// Carry carries content to an empty store, and compares what can be read there with what was given. The term is raised
// by one, so that no leader of the old store can fire in the new one. told, if not nil, hears now and then how many
// rows have been read, written and read again so far.
func Carry(ctx context.Context, from Content, fill Fill, told func(Step)) (Account, error) {
	source := Count(raised{from})
	if told != nil {
		source.told = func(n int64) { told(Step{"carried", n}) }
	}
	err := fill(ctx, source, func(to Content) error {
		there := Count(to)
		if told != nil {
			there.told = func(n int64) { told(Step{"read back", n}) }
		}
		if err := there.read(ctx); err != nil {
			return fmt.Errorf("read back what was carried: %w", err)
		}
		if given, found := source.Account(), there.Account(); !maps.Equal(given, found) {
			return fmt.Errorf("what was carried is not what can be read back: %s", given.Differences(found))
		}
		return nil
	})
	return source.Account(), err
}

// raised is content with a term that is one higher, and led by nobody.
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

// Step says how far a copy is.
type Step struct {
	What string // "carried" or "read back"
	Rows int64  // so far
}

// LeftOut is the error about a run that is over and cannot be read, in the place of that run. What comes after it can be
// read: a backup goes on without it and says so, and nothing else does.
type LeftOut struct{ Err error }

func (l *LeftOut) Error() string { return l.Err.Error() }
func (l *LeftOut) Unwrap() error { return l.Err }

// Take reads content once, and says what is in it.
func Take(ctx context.Context, c Content) (Account, error) {
	all := Count(c)
	err := all.read(ctx)
	return all.Account(), err
}

// Account says how much content there is, by what it is: jobs, live runs, log lines .... Two stores with the same
// account hold the same.
type Account map[string]Sum

// Sum is a number of rows, and a fingerprint of them in whatever order they come.
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

// String lists what there is.
func (a Account) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(a)) {
		parts = append(parts, fmt.Sprintf("%d %s", a[what].Count, what))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Differences says in which counts and fingerprints two accounts differ; "" = in none.
func (a Account) Differences(b Account) string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(both)) {
		switch given, found := a[what], b[what]; {
		case given.Count != found.Count:
			parts = append(parts, fmt.Sprintf("%d %s are %d", given.Count, what, found.Count))
		case given != found:
			parts = append(parts, fmt.Sprintf("%d %s are others", given.Count, what))
		}
	}
	return strings.Join(parts, ", ")
}

// kindNames are the rows in words.
var kindNames = map[kernel.RowKind]string{
	kernel.RowDefinition: "jobs", kernel.RowRun: "live runs", kernel.RowGate: "limits in use", kernel.RowUnique: "unique keys", kernel.RowMissed: "missed ranges",
	kernel.RowTally: "tallies", kernel.RowGlobal: "tenants' settings", kernel.RowToken: "tokens", kernel.RowSession: "sessions", kernel.RowAudit: "audits",
}

const (
	endedName   = "runs that are over"
	leftOutName = "damaged runs left out"
	linesName   = "log lines"
)

// Counted is content that is counted as it is gone through.
type Counted struct {
	Content
	rows, ended, lines Account // of the last time
	told               func(int64)
	n                  int64
}

// Count counts content as it is gone through.
func Count(c Content) *Counted { return &Counted{Content: c, told: func(int64) {}} }

// tellEvery is how many rows lie between two words of progress.
const tellEvery = 1_000

func (c *Counted) note(a Account, what string, b []byte) {
	s := a[what]
	s.add(b)
	a[what] = s
	if c.n++; c.n%tellEvery == 0 {
		c.told(c.n)
	}
}

// Account is what there was when each part was gone through last.
func (c *Counted) Account() Account {
	all := Account{}
	for _, part := range []Account{c.rows, c.ended, c.lines} {
		maps.Copy(all, part)
	}
	return all
}

// read goes through all of it.
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

// Rows counts all rows but what a store keeps about itself, and names of runs that are over.
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
	return fmt.Sprintf("rows of kind %d", k)
}

// Ended counts runs that are over; those of a tenant with their place in its history. It also counts those that are
// left out.
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
