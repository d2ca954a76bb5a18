package daylogs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon/metastore"
)

// All are all lines, run by run. It holds the index of all days in memory.
func (l *Logs) All(ctx context.Context) iter.Seq2[metastore.LogLine, error] {
	return func(yield func(metastore.LogLine, error) bool) {
		names, err := l.names()
		if err != nil {
			yield(metastore.LogLine{}, err)
			return
		}
		for _, n := range names {
			lines, err := l.Read(ctx, n.tenant, n.run, metastore.LogPosition{}, 0)
			if err = errors.Join(err, ctx.Err()); err != nil {
				yield(metastore.LogLine{}, err)
				return
			}
			for _, line := range lines {
				if !yield(line, nil) {
					return
				}
			}
		}
	}
}

// names are the runs that have lines.
func (l *Logs) names() ([]name, error) {
	if err := l.indexAll(); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	seen := map[name]bool{}
	var names []name
	for _, d := range l.days {
		for n := range d.runs {
			if !seen[n] {
				seen[n] = true
				names = append(names, n)
			}
		}
	}
	return names, nil
}

// Fill makes a folder of lines that come run by run. Each attempt is written under the day of its first line: its
// last lines are purged with that day.
func Fill(dir string, lines iter.Seq2[metastore.LogLine, error]) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("fill logs: %w", err)
	}
	f := filling{dir: dir, today: time.Now().UTC().Format(dateForm), days: map[string]*os.File{}}
	defer func() {
		for _, file := range f.days {
			err = errors.Join(err, file.Sync(), file.Close())
		}
	}()
	for line, err := range lines {
		if err == nil {
			err = f.add(line)
		}
		if err != nil {
			return fmt.Errorf("fill logs: %w", err)
		}
	}
	if err := f.flush(); err != nil {
		return fmt.Errorf("fill logs: %w", err)
	}
	return nil
}

// filling is a folder that is being made.
type filling struct {
	dir, today string
	days       map[string]*os.File // by date
	date       string              // of the attempt under way
	account    int                 // its bytes
	size       int                 // of the lines that wait
	lines      []metastore.LogLine // that follow each other
}

// perFrame is about how many bytes of lines make a frame.
const perFrame = 64 << 10

func (f *filling) add(line metastore.LogLine) error {
	var last *metastore.LogLine
	if n := len(f.lines); n > 0 {
		last = &f.lines[n-1]
	}
	if last != nil && (f.size > perFrame || !follows(last, &line)) {
		same := sameAttempt(last, &line)
		if err := f.flush(); err != nil {
			return err
		}
		if !same {
			f.date = ""
		}
	}
	if f.date == "" {
		f.date, f.account = min(line.At.UTC().Format(dateForm), f.today), 0
	}
	if f.account += line.Size(); line.IsCut() {
		f.account = max(f.account, metastore.MaxLog+1) // no more lines follow
	}
	f.size += line.Size()
	f.lines = append(f.lines, line)
	return nil
}

// flush writes the lines that wait.
func (f *filling) flush() error {
	if len(f.lines) == 0 {
		return nil
	}
	file := f.days[f.date]
	if file == nil {
		var err error
		if file, err = os.OpenFile(filepath.Join(f.dir, f.date+suffix), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return err
		}
		f.days[f.date] = file
	}
	_, err := file.Write(appendFrame(nil, f.lines, f.account))
	f.lines, f.size = f.lines[:0], 0
	return err
}
