package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// away is a store that does not answer while it is away.
type away struct {
	metastore.Store
	is atomic.Bool
}

func (a *away) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if a.is.Load() {
		return []metastore.Result{{Err: kernel.Refuse(jobs.Unavailable, "away")}}
	}
	return a.Store.Apply(ctx, batch)
}

type refused struct {
	*ops.Ops
	t     *testing.T
	store *away
}

func newRefused(t *testing.T) *refused {
	r := &refused{t: t, store: &away{Store: &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: time.Now}}}
	r.Ops = ops.New(ops.Config{Store: r.store, Authenticates: true, Node: "n1"})
	return r
}

// audits shows the audits of refused requests, oldest first.
func (r *refused) audits() (list []string) {
	r.t.Helper()
	all, err := r.Audits(r.t.Context(), root, metastore.AuditQuery{Limit: metastore.MaxPage})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, a := range all {
		var after struct {
			Why   string
			Times int
		}
		if err := json.Unmarshal(a.After, &after); err != nil {
			r.t.Fatal(err)
		}
		if a.Verb == "denied" {
			list = append([]string{fmt.Sprintf("%s %s from %s: %s, %d", a.Actor, a.Target, a.From, after.Why, after.Times)}, list...)
		}
	}
	return list
}

// A refused request is in the audit within seconds. One that repeats is counted, and recorded less and less often.
func TestDeniedRequestsAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefused(t)
		one := ops.Denied{Actor: "person:bo", Target: "POST /jobs", From: "192.0.2.7", Why: "role"}
		r.Denied(one)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		want := "person:bo POST /jobs from 192.0.2.7: role, 0"
		if got := r.audits(); len(got) != 1 || got[0] != want {
			t.Fatalf("%q", got)
		}
		for range 24 * 360 { // for a day
			r.Denied(one)
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		got := r.audits()
		if len(got) > 33 || len(got) < 28 {
			t.Errorf("%d audits of a day: %q", len(got), got)
		}
		time.Sleep(3 * time.Hour)
		r.Denied(one)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if again := r.audits(); again[len(again)-1] != want {
			t.Errorf("after a pause: %q", again[len(again)-1])
		}
	})
}

// An attacker with many addresses cannot push other entries out of the audit.
func TestDeniedRequestsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefused(t)
		for n := range 50_000 {
			r.FailedSignIn("sign-in", fmt.Sprint(n), ops.ErrNotKnown)
			if n%50 == 0 {
				time.Sleep(time.Second)
			}
		}
		time.Sleep(time.Minute)
		r.RecordDenials(t.Context(), true)
		got := r.audits()
		if len(got) < 20 || len(got) > 40 {
			t.Errorf("%d audits: %q", len(got), got)
		}
	})
}

// What cannot be recorded is recorded later.
func TestDeniedRequestsWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefused(t)
		r.store.is.Store(true)
		r.Denied(ops.Denied{Target: "a", Why: "b"})
		time.Sleep(6 * time.Second)
		r.Denied(ops.Denied{Target: "a", Why: "b"})
		synctest.Wait()
		if got := r.audits(); len(got) != 0 {
			t.Fatalf("%q", got)
		}
		r.store.is.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := r.audits(); len(got) != 1 || got[0] != "unknown a from : b, 2" {
			t.Errorf("%q", got)
		}
	})
}

// The audit names the token that was refused; its sender learns nothing.
func TestFailedSignInNamesTheToken(t *testing.T) {
	r := newRefused(t)
	ctx := t.Context()
	_, token, err := r.Grant(ctx, root, ops.NewToken{Name: "ann", Role: kernel.RoleViewer})
	if err != nil {
		t.Fatal(err)
	}
	_, worker, err := r.Grant(ctx, root, ops.NewToken{Name: "w", Role: kernel.RoleWorker})
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(_ ops.Who, err error) {
		t.Helper()
		if !errors.Is(err, ops.ErrNotKnown) || err.Error() != ops.ErrNotKnown.Error() {
			t.Errorf("%v", err)
		}
		r.FailedSignIn("sign-in", "::", err)
	}
	refuse(r.Authenticate(ctx, token[:len(token)-1]+"x"))
	refuse(r.Authenticate(ctx, "carillon_default_aaaaaaaa_bbbbbbbbbbbbbbbbbbbbbbbbbb"))
	_, _, err = r.SignIn(ctx, worker)
	refuse(ops.Who{}, err)
	r.FailedSignIn("sign-in", "::", &ops.NoRights{Person: kernel.Person{Name: "Bo"}})
	r.RecordDenials(ctx, true)
	got := map[string]bool{}
	for _, a := range r.audits() {
		got[a] = true
	}
	for _, want := range []string{
		"person:ann sign-in from ::: the secret of the token is wrong, 0",
		"unknown sign-in from ::: " + ops.ErrNotKnown.Error() + ", 0",
		"person:w sign-in from ::: a token of the role worker cannot sign in, 0",
		"person:Bo sign-in from ::: no rule gives this person rights, 0",
	} {
		if !got[want] {
			t.Errorf("no audit %q: %v", want, got)
		}
	}
}
