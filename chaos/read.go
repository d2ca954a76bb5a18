//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
)

// reader reads the store like a client: over the bus, from the leader.
type reader struct {
	metastore.Reader
	close func() error
}

func (s *system) reader(ctx context.Context) (*reader, error) {
	as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Client, Name: "reader"}
	url := s.busURL
	for _, n := range s.nodes {
		if n.busURL != "" && url != "" {
			url += ","
		}
		url += n.busURL
	}
	b, err := natsbus.Connect(ctx, url, natsbus.Config{As: as})
	if err != nil {
		return nil, err
	}
	return &reader{busstore.New(b, as), b.Close}, nil
}

// read reads the whole store, and writes it to a file.
func (s *system) read(ctx context.Context, name string, keys []judge.Spec) (*judge.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	r, err := s.reader(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	defer r.close()
	all := &judge.Store{At: judge.Now()}
	for q := (metastore.RunQuery{Limit: metastore.MaxPage}); ; {
		page, err := again(ctx, func() (metastore.Page, error) { return r.Runs(ctx, q) })
		if err != nil {
			return nil, fmt.Errorf("read runs: %w", err)
		}
		for _, run := range page.Runs {
			all.Runs = append(all.Runs, runOf(run))
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	for _, spec := range keys {
		d, err := again(ctx, func() (*kernel.Definition, error) { return r.Definition(ctx, "", jobs.Key(spec.Key)) })
		if err != nil {
			return nil, fmt.Errorf("read job %s: %w", spec.Key, err)
		}
		all.Definitions = append(all.Definitions, judge.Definition{Key: string(d.Key), Schedule: d.Policy.Schedule, Created: d.Created, Revision: d.Revision})
		missed, err := again(ctx, func() ([]*kernel.Missed, error) { return r.Ledger(ctx, "", d.UID, 10_000) })
		if err != nil {
			return nil, fmt.Errorf("read the ledger of %s: %w", spec.Key, err)
		}
		for _, m := range missed {
			all.Missed = append(all.Missed, judge.Missed{Key: string(m.Key), From: m.From, To: m.To, Count: m.Count, Reason: string(m.Reason)})
		}
	}
	w, err := judge.Open(s.records, judge.StoreFile(name))
	if err != nil {
		return nil, err
	}
	if err := w.Write(all); err != nil {
		return nil, err
	}
	return all, w.Close()
}

// again repeats a request until there is a response: the leader may be changing.
func again[A any](ctx context.Context, ask func() (A, error)) (a A, err error) {
	for range 50 {
		if a, err = ask(); err == nil || ctx.Err() != nil {
			return a, err
		}
		time.Sleep(200 * time.Millisecond)
	}
	return a, err
}

func runOf(run *kernel.Run) judge.Run {
	r := judge.Run{ID: run.ID.String(), Key: string(run.Key), State: run.State.String(), Cause: string(run.Cause), Origin: string(run.Origin),
		Due: run.Due, Created: run.Created, Started: run.Started, Ended: run.Ended, RetryAt: run.RetryAt, Attempt: run.Attempt, Worker: run.Worker,
		Unique: run.Unique, Error: run.Error, Result: run.Result, Revision: run.Revision}
	if !run.Parent.IsZero() {
		r.Parent = run.Parent.String()
	}
	for _, m := range run.Moves {
		r.Moves = append(r.Moves, judge.Move{State: m.State.String(), Cause: string(m.Cause), At: m.At, Attempt: m.Attempt, By: m.By, Text: run.Text(&m)})
	}
	return r
}
