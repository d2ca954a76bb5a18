package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/backup"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog/hashicorp"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

// A store that is copied to another kind, again and again, keeps its content: the suite of all stores compares it with
// the model, with a move in place of each crash. Only rough tests run all stories.
func TestStoreThatMoves(t *testing.T) {
	tests.Long(t)
	n := 0
	storetest.Sample(t, tests.Size(0, 12, 1), func(t *testing.T) storetest.Harness {
		n++
		clock := storetest.NewClock()
		return moving(t, clock, n, newBody(t, clock, n))
	})
}

// body is where a store is at a time.
type body struct {
	open func() (metastore.Full, func() error, error)
	read func(context.Context) (*place, error)
	fill metastore.Fill
}

// newBody is a place of its own, of the kinds in turn: a directory, PostgreSQL, MariaDB.
func newBody(t *testing.T, clock *storetest.Clock, turn int) body {
	t.Helper()
	if turn%3 == 0 {
		c := raftstore.Config{Dir: filepath.Join(t.TempDir(), "rows"), Logs: hashicorp.Kinds(), Now: clock.Now}
		return body{
			open: func() (metastore.Full, func() error, error) {
				s, err := raftstore.Open(c)
				if err != nil {
					return nil, nil, err
				}
				return s, s.Close, nil
			},
			read: func(context.Context) (*place, error) {
				f, err := raftstore.Freeze(c)
				return &place{f, f}, err
			},
			// By way of a file.
			fill: func(ctx context.Context, from metastore.Content, check func(metastore.Content) error) error {
				f, err := backup.Save(ctx, filepath.Join(t.TempDir(), "backup"), func(to io.Writer) error {
					_, err := backup.Write(ctx, to, backup.Head{}, from)
					return err
				})
				if err != nil {
					return err
				}
				return raftstore.Fill(ctx, c, f, check)
			},
		}
	}
	kind := sqltest.Postgres
	if turn%3 == 2 {
		kind = sqltest.MariaDB
	}
	c := sqlstore.Config{URL: kind.New(t), Now: clock.Now, Copy: true}
	return body{
		open: func() (metastore.Full, func() error, error) {
			s, err := sqlstore.Open(context.WithoutCancel(t.Context()), c)
			if err != nil {
				return nil, nil, err
			}
			return s, leading(t, s), nil
		},
		read: func(ctx context.Context) (*place, error) {
			f, err := sqlstore.Freeze(ctx, c)
			return &place{f, f}, err
		},
		fill: func(ctx context.Context, from metastore.Content, check func(metastore.Content) error) error {
			return sqlstore.Fill(ctx, c, from, check)
		},
	}
}

// leading has a store lead, until it is closed.
func leading(t *testing.T, s *sqlstore.Store) (closeStore func() error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	leads, ended := make(chan struct{}), make(chan error, 1)
	began := sync.OnceFunc(func() { close(leads) })
	go func() {
		ended <- s.Lead(ctx, func(ctx context.Context, _ uint64) error {
			began()
			<-ctx.Done()
			return nil
		})
	}()
	select {
	case <-leads:
	case <-time.After(time.Minute):
		t.Fatal("it does not lead")
	}
	return sync.OnceValue(func() error {
		stop()
		return errors.Join(<-ended, s.Close())
	})
}

// moving opens a store, and moves it when it should crash. It does not raise the term, which the stories check.
func moving(t *testing.T, clock *storetest.Clock, turn int, b body) storetest.Harness {
	t.Helper()
	s, closeStore, err := b.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeStore() }) // a second time mostly
	return storetest.Harness{
		Store: s,
		Clock: clock,
		Slow:  true,
		Crash: func(t *testing.T) storetest.Harness {
			t.Helper()
			if err := closeStore(); err != nil {
				t.Fatal(err)
			}
			from, err := b.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			next := newBody(t, clock, turn+1)
			given := metastore.Count(from)
			err = next.fill(t.Context(), given, func(to metastore.Content) error {
				found, err := metastore.Take(t.Context(), to)
				if differ := given.Account().Differences(found); differ != "" {
					t.Error(differ)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := from.Close(); err != nil {
				t.Fatal(err)
			}
			return moving(t, clock, turn+1, next)
		},
	}
}
