package controlplane_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/auditfile"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// shelf is a sink that keeps lines, and fails while fail is set: after it has received half of them.
type shelf struct {
	name  string
	mu    sync.Mutex
	lines []byte
	fail  error
	slow  time.Duration
	tries int
}

func (s *shelf) Name() string { return s.name }
func (s *shelf) Close()       {}
func (s *shelf) Send(ctx context.Context, lines [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.slow > 0 {
		select {
		case <-time.After(s.slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.fail != nil {
		s.lines = append(s.lines, bytes.Join(lines[:len(lines)/2], nil)...)
		return s.fail
	}
	s.lines = append(s.lines, bytes.Join(lines, nil)...)
	return nil
}

func (s *shelf) set(fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// verified returns the chains of what a sink has, which must go up to the store's last audit.
func (s *shelf) verified(h *fixture, tenants ...jobs.Tenant) map[jobs.Tenant]*auditfile.Chain {
	h.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var v auditfile.Verifier
	for _, tenant := range tenants {
		g, err := h.full.Global(h.ctx, tenant)
		if err != nil {
			h.t.Fatal(err)
		}
		if err := v.Want(hex.EncodeToString(g.AuditHead)); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := v.Read(s.name, bytes.NewReader(s.lines)); err != nil {
		h.t.Fatal(err)
	}
	list, _, err := v.Done()
	if err != nil {
		h.t.Fatalf("sink %s: %v", s.name, err)
	}
	found := map[jobs.Tenant]*auditfile.Chain{}
	for _, c := range list {
		found[c.Tenant] = c
	}
	return found
}

// exporting has the fixture's control plane export to sinks.
func (h *fixture) exporting(sinks ...*shelf) {
	h.stop()
	h.sinks = nil
	for _, s := range sinks {
		h.sinks = append(h.sinks, s)
	}
	h.start()
}

func (h *fixture) sink(name string) *kernel.AuditSink {
	h.t.Helper()
	synctest.Wait()
	g, err := h.full.Global(h.ctx, jobs.DefaultTenant)
	if err != nil {
		h.t.Fatal(err)
	}
	return g.AuditSink(name)
}

// Each audit reaches each sink, over changes of the leader and failures, and what a sink has can be verified.
func TestAuditIsExported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		n := 0
		change := func() {
			n++
			h.must(kernel.Configure{MaxJobs: new(1000 + n)})
		}
		change()
		a, b := &shelf{name: "a"}, &shelf{name: "b"}
		h.exporting(a, b)
		for range 250 { // more than a page
			change()
		}
		time.Sleep(3 * time.Second)
		for _, s := range []*shelf{a, b} {
			if c := s.verified(h, jobs.DefaultTenant)["default"]; c.First != 1 || c.Repeats != 0 {
				t.Errorf("sink %s has %+v", s.name, c)
			}
		}
		// One that is away does not hold up the other, nor commits, and receives all later.
		b.set(errors.New("no space left"))
		since := time.Now()
		change()
		change()
		time.Sleep(5 * time.Minute)
		a.verified(h, jobs.DefaultTenant)
		if s := h.sink("b"); s.Error != "no space left" || s.Failing.Before(since) || s.Failing.After(since.Add(5*time.Second)) || s.N >= h.sink("a").N {
			t.Errorf("the failing sink is %+v", s)
		}
		if b.tries > 20 {
			t.Errorf("the sink was tried %d times in five minutes", b.tries)
		}
		b.set(nil)
		time.Sleep(time.Minute + 5*time.Second)
		if c := b.verified(h, jobs.DefaultTenant)["default"]; c.Repeats == 0 {
			t.Error("nothing was repeated, though half a batch was received before the failure")
		}
		if s := h.sink("b"); !s.Failing.IsZero() || s.Error != "" {
			t.Errorf("the sink that receives again is %+v", s)
		}
		// Another leader continues.
		lines := bytes.Count(a.lines, []byte("\n"))
		change()
		h.exporting(a, b)
		change()
		time.Sleep(3 * time.Second)
		a.verified(h, jobs.DefaultTenant)
		if more := bytes.Count(a.lines, []byte("\n")) - lines; more > 3 {
			t.Errorf("%d lines were sent for two audits", more)
		}
		// A sink that is removed holds nothing back.
		h.exporting(a)
		change()
		time.Sleep(3 * time.Second)
		if s := h.sink("b"); s != nil {
			t.Errorf("the sink that is no longer configured is %+v", s)
		}
		h.exporting()
		time.Sleep(3 * time.Second)
		if s := h.sink("a"); s != nil {
			t.Errorf("without sinks there is %+v", s)
		}
	})
}

// Audits that were purged before a sink received them are a gap in its lines, which the audit itself confirms.
func TestAuditGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		a := &shelf{name: "a"}
		h.exporting(a)
		h.must(kernel.Configure{MaxJobs: new(7)})
		time.Sleep(3500 * time.Millisecond) // between two of its looks, so that it sees nothing of what is purged
		a.set(errors.New("away"))
		var batch []kernel.Envelope
		for i := range kernel.MaxAuditsWaiting + 5 {
			batch = append(batch, kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: kernel.Configure{MaxJobs: new(1000 + i)}})
			if len(batch) == 500 || i == kernel.MaxAuditsWaiting+4 {
				for _, r := range h.store.Apply(h.ctx, batch) {
					if r.Err != nil {
						t.Fatal(r.Err)
					}
				}
				batch = nil
			}
		}
		time.Sleep(2 * time.Minute)
		a.set(nil)
		time.Sleep(2 * time.Minute)
		c := a.verified(h, jobs.DefaultTenant)["default"]
		if len(c.Gaps) != 1 || c.Gaps[0].From != 2 || c.Gaps[0].Sink != "a" {
			t.Errorf("the gaps are %+v", c.Gaps)
		}
		if s := h.sink("a"); s.GapFrom != 2 || s.GapTo != c.Gaps[0].To || s.GapAt.IsZero() {
			t.Errorf("the sink is %+v", s)
		}
		if strings.Count(string(a.lines), `"gap"`) != 1 {
			t.Log("the gap was written again") // allowed: at least once
		}
	})
}

var _ controlplane.AuditSink = (*shelf)(nil)
