package storetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Tokens, audits and purges: in stories, and after every commit.

func secretOf(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}

// sessionID is the id of a session by its name in the story.
func sessionID(name string) string { return hex.EncodeToString(secretOf("session " + name)) }

func (tl *telling) access(w words) kernel.Command {
	switch w.verb {
	case "grant":
		return kernel.Grant{Token: kernel.Token{ID: w.name(0), Name: w.name(1), Role: w.name(2), App: w.take("app"), Scope: scopeIn(w), Until: tl.at(w.take("until")),
			Hash: secretOf(or(w.take("secret"), "secret"))}}
	case "revoke":
		return kernel.Revoke{ID: w.name(0)}
	case "signin":
		return tl.signIn(w)
	case "touch":
		return kernel.Touch{ID: sessionID(w.name(0))}
	}
	return kernel.SignOut{ID: sessionID(w.name(0))}
}

// scopeIn is the jobs, apps and tags that an operator is limited to.
func scopeIn(w words) (s kernel.Scope) {
	for name, list := range map[string]*[]string{"jobs": &s.Keys, "apps": &s.Apps, "tags": &s.Tags} {
		if text := w.take(name); text != "" {
			*list = strings.Split(text, "+")
		}
	}
	return s
}

func (tl *telling) signIn(w words) kernel.SignIn {
	s := kernel.Session{ID: sessionID(w.name(0)), Until: tl.at(w.take("until"))}
	if idle := w.take("idle"); idle != "" {
		s.Idle = tl.duration(idle)
	}
	if len(w.names) > 1 {
		s.Token = w.name(1)
		return kernel.SignIn{Session: s}
	}
	s.Person = kernel.Person{Subject: w.take("subject"), Name: w.take("name"), Email: w.take("email")}
	for one := range strings.SplitSeq(w.take("rights"), ",") {
		tenant, role, _ := strings.Cut(one, ":")
		s.Rights = append(s.Rights, kernel.Rights{Tenant: jobs.Tenant(tenant), Role: role})
	}
	if scope := scopeIn(w); !scope.All() {
		s.Rights[0].Scope = scope
	}
	return kernel.SignIn{Session: s}
}

// trim names the rows that the leader sees as history before a time, or all that will ever be history.
func (tl *telling) trim(w words) kernel.Command {
	k := kernel.PurgeAudit{Before: tl.at(w.take("before"))}
	for _, row := range tl.rows() {
		if at, _ := doneAt(row); at.Before(k.Before) || w.has("all") {
			k.Refs = append(k.Refs, row.Ref())
		}
	}
	return k
}

// doneAt is when PurgeAudit may have something to do with a row, or false if never.
func doneAt(row kernel.Row) (time.Time, bool) {
	if t, ok := row.(*kernel.Tally); ok {
		return t.End(), true
	}
	return metastore.DoneAt(row)
}

// rows are those that a leader sees as history, or will see, sorted by their text.
func (tl *telling) rows() []kernel.Row {
	if tl.h.Rows == nil {
		tl.t.Skip("this story looks at rows, and the store shows none")
	}
	var found []kernel.Row
	for row := range tl.h.Rows() {
		if _, ok := doneAt(row); ok {
			found = append(found, row)
		}
	}
	slices.SortFunc(found, func(a, b kernel.Row) int { return strings.Compare(tl.aged(a.Ref()), tl.aged(b.Ref())) })
	return found
}

func token(k *kernel.Token) string {
	p := phrase{fmt.Sprintf("token %s %q, %s", k.ID, k.Name, k.Role)}
	p.add(k.App != "", "app %s", k.App)
	p.add(!k.Scope.All(), "%s", &k.Scope)
	p.add(true, "by %s", k.By)
	p.time("until", k.Until)
	return strings.Join(p, ", ")
}

func showTokens(tl *telling, w words) string {
	list, err := tl.h.Store.Tokens(tl.t.Context(), tenantOf(w))
	if err != nil {
		return refusedRead(err)
	}
	for _, k := range list {
		one, err := tl.h.Store.Token(tl.t.Context(), k.Tenant, k.ID)
		if err != nil || !equal(one, k) {
			tl.t.Errorf("token %s is %+v in the list and %+v by itself: %v", k.ID, k, one, err)
		}
	}
	return several(list, token)
}

func showCalendars(tl *telling, w words) string {
	list, err := tl.h.Store.Calendars(tl.t.Context(), tenantOf(w))
	if err != nil {
		return refusedRead(err)
	}
	return several(list, func(c *kernel.Calendar) string {
		p := phrase{fmt.Sprintf("calendar %s %q", c.Name, c.Rules)}
		p.add(c.Zone != "", "in %s", c.Zone)
		p.add(c.Description != "", "%s", c.Description)
		p.add(c.Bundle != "", "bundle %s", c.Bundle)
		p.add(true, "revision %d by %s", c.Revision, c.By)
		for _, e := range c.Earlier {
			p.add(true, "until %s %q", since(e.Until), e.Rules)
		}
		return strings.Join(p, ", ")
	})
}

func showSession(tl *telling, w words) string {
	s, err := tl.h.Store.Session(tl.t.Context(), tenantOf(w), sessionID(w.name(0)))
	if err != nil {
		return refusedRead(err)
	}
	return session(s)
}

func session(s *kernel.Session) string {
	p := phrase{"session by token " + s.Token}
	if s.Token == "" {
		p = phrase{fmt.Sprintf("session of %s, %s", s.Person.Subject, s.Person.Actor())}
		for _, r := range s.Rights {
			p.add(true, "%s in %s", r.Role, r.Tenant)
			p.add(!r.Scope.All(), "%s", &r.Scope)
		}
	}
	p.time("seen", s.Seen)
	p.time("until", s.Until)
	p.add(s.Idle > 0, "at the latest %s", since(s.End()))
	return strings.Join(p, ", ")
}

func showSessions(tl *telling, w words) string {
	list, err := tl.h.Store.Sessions(tl.t.Context(), tenantOf(w))
	if err != nil {
		return refusedRead(err)
	}
	return several(list, session)
}

func showAudits(tl *telling, w words) string {
	list, err := tl.h.Store.Audits(tl.t.Context(), metastore.AuditQuery{Tenant: tenantOf(w), Target: tl.targetOf(w.value["target"]),
		Actor: w.value["by"], Before: uint64(tl.number(w.value["before"])),
		Since: uint64(tl.number(w.value["since"])), Limit: tl.number(w.value["limit"])})
	if err != nil {
		return refusedRead(err)
	}
	return several(list, func(a *kernel.Audit) string {
		p := phrase{fmt.Sprintf("%d %s %s %s, %s", a.N, since(a.At), a.Actor, a.Verb, a.Target)}
		p.add(a.Reason != "", "because %q", a.Reason)
		p.add(a.Before != nil, "was %s", a.Before)
		p.add(a.After != nil, "is %s", a.After)
		return tl.named(strings.Join(p, ", "))
	})
}

// targetOf has the id of a run in the place of its name.
func (tl *telling) targetOf(text string) string {
	if name, of, ok := strings.Cut(strings.TrimPrefix(text, "run "), " of "); ok {
		return "run " + tl.run(name).String() + " of " + of
	}
	return text
}

func showAged(tl *telling, w words) string {
	limit := 100
	if n := w.value["limit"]; n != "" {
		limit = tl.number(n)
	}
	refs, err := tl.leader().Aged(tl.t.Context(), tl.at(w.name(0)), limit)
	if err != nil {
		return refusedRead(err)
	}
	lines := make([]string, len(refs))
	for i, ref := range refs {
		lines[i] = tl.aged(ref)
	}
	return sorted(lines)
}

var spans = map[kernel.Span]string{kernel.Hour: "hour", kernel.Day: "day"}

func showHourly(tl *telling, w words) string {
	refs, err := tl.leader().Hourly(tl.t.Context(), tl.at(w.name(0)), 100)
	if err != nil {
		return refusedRead(err)
	}
	lines := make([]string, len(refs))
	for i, ref := range refs {
		lines[i] = tl.aged(ref)
	}
	return sorted(lines)
}

// aged is the text of a row that is history.
func (tl *telling) aged(ref kernel.Ref) string {
	switch ref.Kind {
	case kernel.RowTally:
		return tl.named(fmt.Sprintf("tally of %s in the %s from %s", ref.ID, spans[ref.Span], since(time.Unix(0, ref.At))))
	case kernel.RowMissed:
		return tl.named(fmt.Sprintf("missed of %s from %s", ref.ID, since(time.Unix(0, ref.At))))
	case kernel.RowSession:
		return "session"
	case kernel.RowToken:
		return "token " + ref.Name
	}
	return "job " + ref.Name
}

// batches checks the counts of batches.
func batches(t *testing.T, all rows) {
	t.Helper()
	live, n := map[kernel.Ref]uint64{}, map[jobs.Tenant]int{}
	for _, row := range all {
		if run, ok := row.(*kernel.Run); ok && !run.Batch.IsZero() && !run.State.Final() {
			live[kernel.BatchRef(run.Tenant, run.Batch)]++
		}
	}
	for ref, row := range all {
		b, ok := row.(*kernel.Batch)
		if !ok {
			continue
		}
		n[b.Tenant]++
		timer, _ := all[kernel.UniqueRef(b.Tenant, b.TimerName())].(*kernel.UniqueKey)
		if b.Live() != live[ref] || b.Ended.IsZero() != (b.Closed.IsZero() || live[ref] > 0) || !b.Until.IsZero() != (timer != nil && timer.Until.Equal(b.Until)) {
			t.Errorf("batch %+v has %d live runs, and the timer %v", b, live[ref], timer)
		}
	}
	for tenant, n := range n {
		if g, _ := all[kernel.GlobalRef(tenant)].(*kernel.Global); g == nil || g.Batches != n {
			t.Errorf("%s counts %v batches, want %d", tenant, g, n)
		}
	}
}

// access checks the counts and keys beside the rows of tokens, sessions and jobs.
func access(t *testing.T, all rows) {
	t.Helper()
	type tally struct{ jobs, admins, audits int }
	counted := map[jobs.Tenant]*tally{}
	of := func(tenant jobs.Tenant) *tally {
		if counted[tenant] == nil {
			counted[tenant] = &tally{}
		}
		return counted[tenant]
	}
	for _, row := range all {
		switch row := row.(type) {
		case *kernel.Definition:
			if !row.Gone() {
				of(row.Tenant).jobs++
			}
		case *kernel.Audit:
			of(row.Tenant).audits++
		case *kernel.Token:
			if row.Master() {
				of(row.Tenant).admins++
			}
			name, ok := all[kernel.UniqueRef(row.Tenant, kernel.TokenName(row.Name))].(*kernel.UniqueKey)
			if row.Until.IsZero() && (!ok || name.ID != kernel.TokenKey(row.ID)) {
				t.Errorf("token %s has not reserved its name %q", row.ID, row.Name)
			}
		case *kernel.UniqueKey:
			if !strings.HasPrefix(row.Name, kernel.TokenName("")) || !row.Until.IsZero() {
				continue
			}
			if !slices.ContainsFunc(valuesOf(all), func(r kernel.Row) bool {
				k, ok := r.(*kernel.Token)
				return ok && k.Tenant == row.Tenant && kernel.TokenKey(k.ID) == row.ID
			}) {
				t.Errorf("the name %s is reserved by a deleted token", row.Name)
			}
		}
	}
	for tenant, n := range counted {
		g, _ := all[kernel.GlobalRef(tenant)].(*kernel.Global)
		if g == nil {
			g = &kernel.Global{}
		}
		if g.Jobs != n.jobs || g.Admins != n.admins || g.Audits+1-g.FirstAudit() != uint64(n.audits) {
			t.Errorf("%s counts %d jobs, %d admins and %d audits: there are %+v", tenant, g.Jobs, g.Admins, g.Audits, *n)
		}
	}
}

// chained checks that each audit has its hash and that of the one before it, and the Global that of the last.
func chained(t *testing.T, all rows) {
	t.Helper()
	for ref, row := range all {
		switch row := row.(type) {
		case *kernel.Audit:
			before, _ := all[kernel.AuditRef(ref.Tenant, row.N-1)].(*kernel.Audit)
			if !bytes.Equal(row.Hash, row.Sum()) || before != nil && !bytes.Equal(row.Prev, before.Hash) || (row.N == 1) != (row.Prev == nil) {
				t.Errorf("audit %d of %s has the hash %x and prev %x: the chain is broken", row.N, row.Tenant, row.Hash, row.Prev)
			}
		case *kernel.Global:
			last, _ := all[kernel.AuditRef(ref.Tenant, row.Audits)].(*kernel.Audit)
			if row.Audits > 0 && (last == nil || !bytes.Equal(last.Hash, row.AuditHead)) {
				t.Errorf("%s has the audit head %x: its last audit is %+v", row.Tenant, row.AuditHead, last)
			}
		}
	}
}

func valuesOf(all rows) []kernel.Row {
	var list []kernel.Row
	for _, row := range all {
		list = append(list, row)
	}
	return list
}

// kept checks that no unused gate remains of a deleted job.
func kept(t *testing.T, all rows, waiting map[kernel.Ref]int) {
	t.Helper()
	alive := map[string]bool{}
	for _, row := range all {
		if d, ok := row.(*kernel.Definition); ok && !d.Gone() {
			alive[kernel.JobGate(d.UID)] = true
		}
	}
	for ref, row := range all {
		g, ok := row.(*kernel.Gate)
		if ok && strings.HasPrefix(g.Name, "job/") && !alive[g.Name] && g.Taken == 0 && waiting[ref] == 0 {
			t.Errorf("%s is left of a deleted job, and unused", g.Name)
		}
		_, backfill := kernel.BackfillOf(ref.Name)
		if ok && (backfill || kernel.Keyed(g.Name)) && g.Taken == 0 && waiting[ref] == 0 && all[kernel.UniqueRef(g.Tenant, "gate/"+g.Name)] == nil {
			t.Errorf("%s is left, and unused", g.Name)
		}
	}
}

// failed is the first error of a batch.
func failed(results []metastore.Result) error {
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// record checks that audits keep the newest, and no more.
func record(t *testing.T, open func(t *testing.T) Harness) {
	h := open(t)
	const beyond, part = 50, 503
	n := 0
	for n < kernel.MaxAudits+beyond {
		batch := make([]kernel.Envelope, min(part, kernel.MaxAudits+beyond-n))
		for i := range batch {
			n++
			batch[i] = kernel.Envelope{ID: kernel.DerivedID("record", fmt.Sprint(n)), Tenant: "default", Actor: "person:ann",
				Command: kernel.Configure{MaxJobs: new(n)}}
		}
		for tries := 0; ; tries++ {
			err := failed(h.Store.Apply(t.Context(), batch))
			if err == nil {
				break
			}
			// A database unlocks its row if a process is starved for seconds.
			if jobs.CodeOf(err) != jobs.Unavailable || tries == 5 {
				t.Fatal(err)
			}
		}
	}
	prev := []byte(nil)
	for since := uint64(1); since > 0; {
		list, err := h.Store.Audits(t.Context(), metastore.AuditQuery{Tenant: "default", Since: since, Limit: metastore.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		since = 0
		for _, a := range list {
			if !bytes.Equal(a.Hash, a.Sum()) || prev != nil && !bytes.Equal(a.Prev, prev) {
				t.Fatalf("audit %d does not continue the chain", a.N)
			}
			prev, since = a.Hash, a.N+1
		}
	}
	if g, err := h.Store.Global(t.Context(), "default"); err != nil || !bytes.Equal(g.AuditHead, prev) {
		t.Errorf("the chain ends with %x, and the head is %x: %v", prev, g.AuditHead, err)
	}
	next := uint64(0)
	seen := 0
	for {
		list, err := h.Store.Audits(t.Context(), metastore.AuditQuery{Tenant: "default", Before: next, Limit: metastore.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		for _, a := range list {
			if want := uint64(n - seen); a.N != want || !strings.Contains(string(a.After), fmt.Sprint(`"maxJobs":`, want)) {
				t.Fatalf("audit %d is %d, %s", want, a.N, a.After)
			}
			seen++
		}
		next = list[len(list)-1].N
	}
	if seen != kernel.MaxAudits {
		t.Errorf("%d audits are kept, want %d", seen, kernel.MaxAudits)
	}
	if h.Crash != nil {
		h = h.Crash(t)
		last, err := h.Store.Audits(t.Context(), metastore.AuditQuery{Tenant: "default", Limit: 1})
		if err != nil || len(last) != 1 || last[0].N != uint64(n) {
			t.Errorf("after a crash, the last audit is %v, %v", last, err)
		}
	}
}
