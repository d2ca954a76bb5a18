package ops_test

import (
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

var annLee = ops.Identity{Person: kernel.Person{Subject: "u-17", Name: "Ann Lee", Email: "ann@example.com"},
	Rights: []kernel.Rights{{Tenant: "default", Role: kernel.RoleOperator}, {Tenant: "other", Role: kernel.RoleAdmin}}}

func (d *fixture) in(cookie string, use bool) ops.Who {
	d.t.Helper()
	ask := d.SignedIn
	if use {
		ask = d.InUse
	}
	who, err := ask(d.t.Context(), cookie)
	if err != nil && !errors.Is(err, jobs.Forbidden) {
		d.t.Fatal(err)
	}
	return who
}

// A session of a person has an identity and rights of its own, is of one tenant at a time, and its actor is in the audit.
func TestSessionsOfPeople(t *testing.T) {
	d := newFixture(t)
	d.apply(kernel.SetTenant{Name: "other", Create: true})
	cookie, until, err := d.SignInAs(t.Context(), annLee)
	if err != nil || !until.Equal(d.now.Add(12*time.Hour)) {
		t.Fatal(until, err)
	}
	if who := d.in(cookie, false); who != (ops.Who{Tenant: "default", Actor: "person:Ann Lee", Role: ops.Operator, Choice: true}) {
		t.Errorf("%+v", who)
	}
	list, err := d.Sessions(t.Context(), root)
	if err != nil || len(list) != 1 || list[0].Actor != "person:Ann Lee" || list[0].Role != "operator" {
		t.Errorf("%+v (%v)", list, err)
	}
	if _, _, err := d.Switch(t.Context(), cookie, "third"); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("a tenant without rights: %v", err)
	}
	d.now = d.now.Add(time.Minute)
	other, later, err := d.Switch(t.Context(), cookie, "other")
	if err != nil || !later.Equal(until) {
		t.Errorf("the session in another tenant lasts until %v, want %v (%v)", later, until, err)
	}
	if who := d.in(cookie, false); who != (ops.Who{}) {
		t.Errorf("the first session goes on: %+v", who)
	}
	if who := d.in(other, false); who.Tenant != "other" || who.Role != ops.Admin {
		t.Errorf("%+v", who)
	}
	audits, err := d.Audits(t.Context(), root, metastore.AuditQuery{Limit: 10})
	if err != nil || len(audits) < 2 || audits[0].Verb != "signout" || audits[1].Actor != "person:Ann Lee" || audits[1].Target != "session of u-17" {
		t.Errorf("%+v (%v)", audits, err)
	}
	cookie, _, err = d.SignInAs(t.Context(), ops.Identity{Person: annLee.Person, Rights: []kernel.Rights{{Tenant: "gone", Role: kernel.RoleAdmin}, {Tenant: "default", Role: kernel.RoleViewer}}})
	if err != nil {
		t.Fatalf("with rights in a tenant that is gone: %v", err)
	}
	if who, err := d.SignedIn(t.Context(), cookie); err != nil || who.Tenant != "default" || who.Role != ops.Viewer {
		t.Errorf("with rights in a tenant that is gone: %+v, %v", who, err)
	}
	if _, _, err := d.SignInAs(t.Context(), ops.Identity{Person: annLee.Person}); err == nil {
		t.Error("a person without rights signs in")
	}
	// An admin ends a session.
	list, err = d.Sessions(t.Context(), ops.Who{Tenant: "other", Role: ops.Admin})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if err := d.EndSession(t.Context(), ops.Who{Tenant: "other", Actor: "person:root", Role: ops.Admin}, list[0].ID); err != nil || d.in(other, false) != (ops.Who{}) {
		t.Errorf("an ended session goes on (%v)", err)
	}
}

// A session is listed in each tenant where it may act, with its rights there, and can be ended there, wherever it is.
func TestSessionsAreListedWhereTheyMayAct(t *testing.T) {
	tenants := []jobs.Tenant{"default", "other", "third"}
	ann := ops.Identity{Person: annLee.Person, Rights: append([]kernel.Rights{{Tenant: "third", Role: kernel.RoleViewer}}, annLee.Rights...)}
	for _, from := range tenants {
		for _, at := range append(tenants, "fourth") {
			d := newFixture(t)
			for _, name := range []jobs.Tenant{"other", "third", "fourth"} {
				d.apply(kernel.SetTenant{Name: name, Create: true})
			}
			cookie, _, err := d.SignInAs(t.Context(), ann)
			if err == nil && from != "third" {
				cookie, _, err = d.Switch(t.Context(), cookie, from)
			}
			if err != nil {
				t.Fatal(err)
			}
			admin := ops.Who{Tenant: at, Actor: "person:root", Role: ops.Admin}
			list, err := d.Sessions(t.Context(), admin)
			if err != nil {
				t.Fatal(err)
			}
			if at == "fourth" {
				if len(list) > 0 {
					t.Errorf("tenant fourth lists %+v", list)
				}
				s, err := d.Session(t.Context(), cookie)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.EndSession(t.Context(), admin, s.ID); !errors.Is(err, jobs.NotFound) || d.in(cookie, false) == (ops.Who{}) {
					t.Errorf("a tenant without rights ends a session: %v", err)
				}
				continue
			}
			role := map[jobs.Tenant]string{"default": "operator", "other": "admin", "third": "viewer"}[at]
			if len(list) != 1 || list[0].Actor != "person:Ann Lee" || list[0].Role != role || list[0].Away != (at != from) {
				t.Errorf("a session in %s is listed in %s as %+v", from, at, list)
				continue
			}
			if err := d.EndSession(t.Context(), admin, list[0].ID); err != nil || d.in(cookie, false) != (ops.Who{}) {
				t.Errorf("a session in %s is not ended in %s (%v)", from, at, err)
			}
			if err := d.EndSession(t.Context(), admin, list[0].ID); !errors.Is(err, jobs.NotFound) {
				t.Errorf("a session that has ended is ended: %v", err)
			}
		}
	}
}

// Requests keep a session alive, and commit at most one change a minute for that; those that pages send by themselves do not.
func TestSessionsAreIdle(t *testing.T) {
	d := newFixture(t)
	start := func() string {
		t.Helper()
		cookie, _, err := d.SignInAs(t.Context(), annLee)
		if err != nil {
			t.Fatal(err)
		}
		return cookie
	}
	used, watched := start(), start()
	seen := func() (latest time.Time) {
		t.Helper()
		list, err := d.Sessions(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Seen.After(latest) {
				latest = s.Seen
			}
		}
		return latest
	}
	began := seen()
	d.now = d.now.Add(59 * time.Second)
	if d.in(used, true); !seen().Equal(began) {
		t.Error("a session is touched twice in a minute")
	}
	for range 3 {
		d.now = d.now.Add(30 * time.Minute)
		if d.in(used, true) == (ops.Who{}) {
			t.Fatal("a session in use has ended")
		}
	}
	if d.in(watched, false) != (ops.Who{}) {
		t.Error("a session without a request has not ended after an hour")
	}
	for range 24 {
		d.now = d.now.Add(30 * time.Minute)
		d.in(used, true)
	}
	if d.in(used, true) != (ops.Who{}) {
		t.Error("a session in use lasts longer than 12 hours")
	}
}

// Rights in a tenant end when it is deleted: those of a session are not rights in a new tenant of its name, however the
// session is switched.
func TestSessionsAndTenantsOfADeletedName(t *testing.T) {
	d := newFixture(t)
	again := []kernel.Command{kernel.SuspendTenant{Name: "other", On: true}, kernel.DeleteTenant{Name: "other"}, kernel.DropTenant{Name: "other", Last: true}, kernel.SetTenant{Name: "other", Create: true}}
	for _, k := range []kernel.Command{kernel.SetTenant{Name: "other", Create: true}, kernel.SetTenant{Name: "third", Create: true}} {
		d.apply(k)
	}
	ann := ops.Identity{Person: annLee.Person, Rights: append([]kernel.Rights{{Tenant: "third", Role: kernel.RoleViewer}, {Tenant: "none", Role: kernel.RoleViewer}}, annLee.Rights...)}
	cookie, _, err := d.SignInAs(t.Context(), ann)
	if err != nil {
		t.Fatal(err)
	}
	d.now = d.now.Add(time.Minute)
	for _, k := range again {
		d.apply(k)
	}
	d.now = d.now.Add(time.Minute)
	refused := func(to jobs.Tenant) {
		t.Helper()
		if _, _, err := d.Switch(t.Context(), cookie, to); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("a switch to tenant %s: %v", to, err)
		}
	}
	refused("other")
	refused("none")
	if list, err := d.Sessions(t.Context(), ops.Who{Tenant: "other", Role: ops.Admin}); err != nil || len(list) > 0 {
		t.Errorf("a session that may not switch to the new tenant is listed there: %+v (%v)", list, err)
	}
	for _, to := range []jobs.Tenant{"default", "third"} {
		if cookie, _, err = d.Switch(t.Context(), cookie, to); err != nil {
			t.Fatal(err)
		}
		refused("other")
	}
	if cookie, _, err = d.SignInAs(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	if _, _, err = d.Switch(t.Context(), cookie, "other"); err != nil {
		t.Errorf("after a new sign-in: %v", err)
	}
}
