// Package daylogs stores log lines of handlers in files, one for each day.
//
// It is not promised to programs outside this module.
//
// Lines are only appended, to the file of the day on which they arrive. An index in memory finds the lines of a run;
// it is built when it is first needed, and that of an old day is dropped again. Files are synced once a second: a
// loss of power may cost the lines since. Bytes that are no lines, half written or damaged, are reported and skipped,
// and stay in the file.
package daylogs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Logs stores lines in a folder.
type Logs struct {
	dir     string
	now     func() time.Time
	damaged func(error)

	loading sync.Mutex // held while a day is indexed to be read; taken before mu

	mu      sync.Mutex
	days    []*day // by date
	writing *day   // where lines were added last; nil = no lines yet
	dirty   bool   // it has lines that are not synced
	err     error  // of a sync: no write follows it
	closed  bool
}

var _ metastore.Logs = (*Logs)(nil)

const (
	dateForm = "2006-01-02"
	suffix   = ".log"
	// idle is how long the index of an old day is kept for the next read.
	idle = 5 * time.Minute
	// syncEvery is how long lines may wait until they survive a loss of power.
	syncEvery = time.Second
)

// Open opens a folder of logs, or makes one. The clock determines the day; damaged is called once for each file with
// bytes which are no lines.
func Open(dir string, now func() time.Time, damaged func(error)) (*Logs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	l := &Logs{dir: dir, now: now, damaged: damaged}
	for _, f := range files { // by name, and so by date
		date, ok := strings.CutSuffix(f.Name(), suffix)
		if _, err := time.Parse(dateForm, date); ok && err == nil {
			l.days = append(l.days, &day{date: date, path: filepath.Join(dir, f.Name())})
		}
	}
	return l, nil
}

// Close syncs and closes the files.
func (l *Logs) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.sync()
	errs := []error{l.err}
	for _, d := range l.days {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}

// today is the last day, made if it has not begun yet. When a clock goes back, the last day continues; but not one
// further ahead than tomorrow, which was begun by a wrong clock and would take the lines of all days until then.
func (l *Logs) today(now time.Time) (*day, error) {
	date, tomorrow := now.UTC().Format(dateForm), now.UTC().AddDate(0, 0, 1).Format(dateForm)
	n := len(l.days)
	for n > 0 && l.days[n-1].date > tomorrow {
		n--
	}
	var d *day
	if n > 0 && l.days[n-1].date >= date {
		d = l.days[n-1]
		if err := d.open(true); err != nil {
			return nil, err
		}
		l.report(d)
	} else {
		d = &day{date: date, path: filepath.Join(l.dir, date+suffix)}
		if err := d.open(true); err != nil { // a day without a file could not be read, nor the others
			return nil, errors.Join(err, d.close())
		}
		l.days = slices.Insert(l.days, n, d)
	}
	if d != l.writing {
		l.sync()
		l.writing = d
	}
	d.used = now
	return d, nil
}

// others are the days except d.
func (l *Logs) others(d *day) []*day {
	if n := len(l.days) - 1; l.days[n] == d {
		return l.days[:n]
	}
	return slices.DeleteFunc(slices.Clone(l.days), func(o *day) bool { return o == d })
}

// Append stores lines.
func (l *Logs) Append(_ context.Context, lines []metastore.LogLine) error {
	if len(lines) == 0 {
		return nil
	}
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b metastore.LogLine) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), slices.Compare(a.Run[:], b.Run[:]), a.Compare(b.LogPosition))
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.closed {
		return cmp.Or(l.err, kernel.Refuse(jobs.Unavailable, "the logs are closed"))
	}
	now := l.now()
	d, err := l.today(now)
	if err != nil {
		return err
	}
	var b []byte
	var frames []frame
	var ends []int
	for len(lines) > 0 {
		n := leading(lines, sameAttempt)
		kept, account, err := l.keep(d, lines[:n])
		if err != nil {
			return err
		}
		lines = lines[n:]
		for len(kept) > 0 {
			n := leading(kept, follows)
			b = appendFrame(b, kept[:n], account)
			ends = append(ends, len(b))
			frames = append(frames, frame{tenant: string(kept[0].Tenant), run: kept[0].Run, attempt: kept[0].Attempt,
				first: kept[0].Sequence, lines: n, account: account})
			kept = kept[n:]
		}
	}
	if len(b) == 0 {
		return nil
	}
	if _, err := d.file.WriteAt(b, d.end); err != nil {
		return fmt.Errorf("write log file: %w", err)
	}
	at := 0
	for i := range frames {
		d.note(&frames[i], d.end+int64(at), ends[i]-at)
		at = ends[i]
	}
	d.end += int64(len(b))
	if !l.dirty {
		l.dirty = true
		time.AfterFunc(syncEvery, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.sync()
		})
	}
	l.tidy(now)
	return nil
}

// leading is how many lines at the front belong together.
func leading(lines []metastore.LogLine, together func(a, b *metastore.LogLine) bool) int {
	n := 1
	for n < len(lines) && together(&lines[n-1], &lines[n]) {
		n++
	}
	return n
}

func sameAttempt(a, b *metastore.LogLine) bool {
	return a.Tenant == b.Tenant && a.Run == b.Run && a.Attempt == b.Attempt
}

func follows(a, b *metastore.LogLine) bool { return sameAttempt(a, b) && a.Sequence+1 == b.Sequence }

// keep leaves out the lines of an attempt that are stored already, and those beyond its limit. It also returns the
// attempt's account after them.
func (l *Logs) keep(d *day, lines []metastore.LogLine) (kept []metastore.LogLine, account int, err error) {
	n := name{lines[0].Tenant, lines[0].Run}
	a := d.attempt(n, lines[0].Attempt)
	if a == nil {
		a = d.add(n, lines[0].Attempt)
		// It may have begun before midnight.
		if o := l.others(d); len(o) > 0 && (lines[0].Sequence > 1 || o[len(o)-1].index != nil) {
			if err := l.carry(a, n, o); err != nil {
				return nil, 0, err
			}
		}
	}
	for i := range lines {
		if a.account > metastore.MaxLog || a.has(lines[i].Sequence) || i > 0 && lines[i].Sequence == lines[i-1].Sequence {
			continue
		}
		line := lines[i]
		if a.account += line.Size(); a.account > metastore.MaxLog {
			line = line.Cut()
		}
		kept = append(kept, line)
	}
	return kept, a.account, nil
}

// carry continues an attempt from its lines in other days.
func (l *Logs) carry(a *attempt, n name, others []*day) error {
	for _, d := range slices.Backward(others) {
		if err := d.open(false); err != nil {
			return err
		}
		l.report(d)
		d.used = l.now()
		if before := d.attempt(n, a.number); before != nil {
			a.before, a.account = before, before.account
			return nil
		}
	}
	return nil
}

// Read lists the lines of a run after a position, oldest first.
func (l *Logs) Read(_ context.Context, tenant jobs.Tenant, run jobs.ID, after metastore.LogPosition, limit int) ([]metastore.LogLine, error) {
	parts, err := l.parts(name{tenant, run}, after)
	if err != nil {
		return nil, err
	}
	var found []metastore.LogLine
	for _, p := range parts {
		lines, err := readAt(p.file, p.extent)
		if errors.Is(err, os.ErrClosed) {
			continue // pruned meanwhile
		}
		if err != nil {
			return found, fmt.Errorf("read log file %s: %w", p.file.Name(), err)
		}
		for i := range lines {
			if lines[i].Compare(after) <= 0 {
				continue // or it is stored twice, on two days
			}
			if limit > 0 && len(found) == limit {
				return found, nil
			}
			found, after = append(found, lines[i]), lines[i].LogPosition
		}
	}
	return found, nil
}

// part is a frame with lines of a run.
type part struct {
	file    *os.File
	attempt uint32
	extent
}

// parts is where the lines of a run after a position are, in their order.
func (l *Logs) parts(n name, after metastore.LogPosition) ([]part, error) {
	if err := l.indexAll(); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	var parts []part
	for _, d := range l.days {
		r := d.runs[n]
		if r == nil {
			continue
		}
		for _, a := range r.attempts {
			for _, x := range a.extents {
				if after.Compare(metastore.LogPosition{Attempt: a.number, Sequence: x.last}) < 0 {
					parts = append(parts, part{d.file, a.number, x})
				}
			}
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.first, b.first))
	})
	l.tidy(l.now())
	return parts, nil
}

// indexAll loads the index of all days, and holds mu then, unless it returns an error. It does not hold mu while it
// reads a file: writers do not wait for readers.
func (l *Logs) indexAll() error {
	l.loading.Lock()
	defer l.loading.Unlock()
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return kernel.Refuse(jobs.Unavailable, "the logs are closed")
		}
		for _, d := range l.days {
			d.used = l.now()
		}
		i := slices.IndexFunc(l.days, func(d *day) bool { return d.index == nil || d.file == nil })
		if i < 0 {
			return nil
		}
		d := l.days[i]
		l.mu.Unlock()
		if err := l.load(d); err != nil {
			return err
		}
	}
}

// load reads the index of a day, unless it was pruned, or written to, meanwhile. loading must be held.
func (l *Logs) load(d *day) error {
	file, err := os.OpenFile(d.path, os.O_RDWR, 0o600)
	var x *index
	if err == nil {
		if x, err = readIndex(file); err != nil {
			err = fmt.Errorf("read log file %s: %w", d.path, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || d.file != nil && d.index != nil || !slices.Contains(l.days, d) {
		if file != nil {
			_ = file.Close()
		}
		return nil
	}
	if err != nil {
		if file != nil {
			_ = file.Close()
		}
		return err
	}
	if d.file == nil {
		d.file = file
	} else {
		_ = file.Close()
	}
	d.index = x
	l.report(d)
	return nil
}

// report reports bytes of a day that are no lines. mu must be held.
func (l *Logs) report(d *day) {
	if d.lost > 0 && !d.reported {
		d.reported = true
		l.damaged(fmt.Errorf("log file %s: %d bytes are not log lines, the first of them at offset %d: "+
			"at its end a crash leaves some, elsewhere the file is damaged; the other lines are kept", d.path, d.lost, d.from))
	}
}

// tidy drops the indexes of old days that were not read lately.
func (l *Logs) tidy(now time.Time) {
	for _, d := range l.days {
		if d != l.writing && d.index != nil && now.Sub(d.used) > idle {
			d.index = nil
		}
	}
}

// sync syncs the day that is written to. A file whose sync failed is not written to again: its content is unknown.
func (l *Logs) sync() {
	if !l.dirty || l.err != nil {
		return
	}
	l.dirty = false
	if err := l.writing.file.Sync(); err != nil {
		l.err = fmt.Errorf("sync log file: %w", err)
	}
}

// Prune deletes the days that ended before a time.
func (l *Logs) Prune(before time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := before.UTC().AddDate(0, 0, -1).Format(dateForm)
	for len(l.days) > 1 && l.days[0] != l.writing && l.days[0].date <= last {
		d := l.days[0]
		if err := errors.Join(d.close(), os.Remove(d.path)); err != nil {
			return fmt.Errorf("prune logs: %w", err)
		}
		l.days = l.days[1:]
	}
	return nil
}
