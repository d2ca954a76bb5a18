package busstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// Only nodes read and change tokens and sessions, whatever others write into their envelopes.
func TestOnlyNodesAuthenticate(t *testing.T) {
	h := newFixture(t, Config{})
	n := h.as(node)
	token := kernel.Token{ID: "aaaa1111", Name: "ann", Role: kernel.RoleAdmin, Hash: make([]byte, 32)}
	h.must(t, n, register("billing", "billing-1", "charge"))
	if got := h.must(t, n, kernel.Grant{Token: token}).Token; got == nil || got.By != "node:n1" || len(got.Hash) != 32 {
		t.Errorf("granted %+v", got)
	}
	for _, p := range []metastore.Store{h.as(worker), h.as(client)} {
		other := token
		other.ID, other.Name = "bbbb2222", "eve"
		for _, k := range []kernel.Command{kernel.Grant{Token: other}, kernel.Revoke{ID: token.ID}, kernel.SignOut{ID: fmt.Sprintf("%064d", 1)},
			kernel.Delete{Key: "charge"}, kernel.PurgeAudit{}} {
			h.refused(t, p, k, jobs.Forbidden)
		}
		if k, err := p.Token(t.Context(), "", token.ID); !errors.Is(err, jobs.Forbidden) || k != nil {
			t.Errorf("a token is shown: %v, %v", k, err)
		}
		if list, err := p.Tokens(t.Context(), ""); !errors.Is(err, jobs.Forbidden) || list != nil {
			t.Errorf("tokens are shown: %v, %v", list, err)
		}
		if _, err := p.Session(t.Context(), "", fmt.Sprintf("%064d", 1)); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("a session: %v", err)
		}
		if list, err := p.Audits(t.Context(), metastore.AuditQuery{}); !errors.Is(err, jobs.Forbidden) || list != nil {
			t.Errorf("the record is shown: %v, %v", list, err)
		}
	}
	if list, err := n.Tokens(t.Context(), ""); err != nil || len(list) != 1 {
		t.Errorf("tokens are %v, %v", list, err)
	}
}

// More tokens than a message carries need several; of audits, as many as it carries, the newest.
func TestTokensAndAuditsFit(t *testing.T) {
	hub, st := membus.New(), memstore.Open(memstore.Config{})
	served := &line{Calls: hub.As(node), limit: 16 << 10}
	if err := Serve(t.Context(), served, st, Config{}); err != nil {
		t.Fatal(err)
	}
	l := &line{Calls: hub.As(node), limit: 16 << 10}
	s := New(l, node)
	const all = 500
	for i := range all {
		k := kernel.Grant{Token: kernel.Token{ID: fmt.Sprintf("t%07d", i), Name: fmt.Sprint("token ", i), Role: kernel.RoleViewer, Hash: make([]byte, 32)}}
		allDone(t, st.Apply(t.Context(), []kernel.Envelope{{ID: jobs.ID{byte(i), byte(i >> 8)}, Tenant: "default", Actor: "person:ann", Command: k}}))
	}
	before := l.calls.Load()
	list, err := s.Tokens(t.Context(), "")
	if err != nil || len(list) != all {
		t.Fatalf("%d tokens, %v", len(list), err)
	}
	for i := range list[1:] {
		if list[i].Name >= list[i+1].Name {
			t.Fatalf("token %q comes before %q", list[i].Name, list[i+1].Name)
		}
	}
	if calls := l.calls.Load() - before; calls < 3 {
		t.Errorf("%d calls: they did not have to be divided", calls)
	}
	seen, next := 0, uint64(0)
	for {
		page, err := s.Audits(t.Context(), metastore.AuditQuery{Before: next, Limit: metastore.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, a := range page {
			if want := uint64(all - seen); a.N != want {
				t.Fatalf("audit %d comes as the %dth", a.N, seen+1)
			}
			seen++
		}
		next = page[len(page)-1].N
	}
	if seen != all {
		t.Errorf("%d audits, want %d", seen, all)
	}
}
