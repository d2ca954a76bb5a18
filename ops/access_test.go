package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

var root = ops.Who{Actor: "person:root", Role: ops.Admin}

func (d *fixture) grant(want ops.NewToken) (*kernel.Token, string) {
	d.t.Helper()
	token, text, err := d.Grant(d.t.Context(), root, want)
	if err != nil {
		d.t.Fatal(err)
	}
	return token, text
}

func TestTokens(t *testing.T) {
	d := newFixture(t)
	_, text := d.grant(ops.NewToken{Name: "Ann", Role: "operator", For: time.Hour})
	if !strings.HasPrefix(text, "carillon_default_") || len(text) != len("carillon_default_12345678_")+26 {
		t.Errorf("a token is %q", text)
	}
	who, err := d.Authenticate(t.Context(), text)
	if err != nil || who.Role != ops.Operator || who.Actor != "person:Ann" || who.Tenant != jobs.DefaultTenant {
		t.Errorf("it is %+v (%v)", who, err)
	}
	// Nothing of the secret is in the store, or in the record.
	list, err := d.Tokens(t.Context(), root)
	audits, auditErr := d.Audits(t.Context(), root, metastore.AuditQuery{Actor: root.Actor, Limit: 10})
	rows, _ := json.Marshal([]any{list, audits})
	if secret := text[len(text)-26:]; err != nil || auditErr != nil || len(list) != 1 || len(audits) != 1 || strings.Contains(string(rows), secret) {
		t.Errorf("the store holds %s", rows)
	}
	for name, wrong := range map[string]string{
		"nothing": "", "the prefix": "carillon_", "no secret": text[:len(text)-26], "a part": text[:len(text)-1], "more": text + "A",
		"the last character": text[:len(text)-1] + string('A'+(text[len(text)-1]-'A'+1)%26), "another case": strings.ToLower(text),
		"another tenant": strings.Replace(text, "_default_", "_other_", 1), "a path": strings.Replace(text, "_default_", "_../x_", 1),
		"another id": strings.Replace(text, list[0].ID, "zzzzzzzz", 1), "a megabyte": text + strings.Repeat("A", 1<<20), "NUL": text + "\x00",
		"an unsigned JWT": "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJBbm4iLCJyb2xlIjoiYWRtaW4ifQ.",
	} {
		if who, err := d.Authenticate(t.Context(), wrong); !errors.Is(err, jobs.Forbidden) || who != (ops.Who{}) || err.Error() != ops.ErrNotKnown.Error() {
			t.Errorf("%s: %+v (%v)", name, who, err)
		}
	}
	d.now = d.now.Add(time.Hour)
	if _, err := d.Authenticate(t.Context(), text); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("its time is over: %v", err)
	}
	again, text := d.grant(ops.NewToken{Name: "Bob", Role: "viewer"})
	if err := d.Revoke(t.Context(), root, again.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Authenticate(t.Context(), text); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("it is revoked: %v", err)
	}
}

func TestTokensRefused(t *testing.T) {
	d := newFixture(t)
	d.grant(ops.NewToken{Name: "Ann", Role: "admin"})
	for _, want := range []ops.NewToken{
		{Name: "", Role: "admin"}, {Name: "a\nb", Role: "admin"}, {Name: "b", Role: "root"}, {Name: "b", Role: ""}, {Name: "b", Role: "none"},
		{Name: "b", Role: "admin", App: "app"}, {Name: "b", Role: "worker", App: "a b"}, {Name: "b", Role: "admin", For: -1},
		{Name: "b", Role: "admin", For: 6 * 366 * 24 * time.Hour},
	} {
		if _, text, err := d.Grant(t.Context(), root, want); !errors.Is(err, jobs.BadInput) || text != "" {
			t.Errorf("%+v: %q (%v)", want, text, err)
		}
	}
	if _, _, err := d.Grant(t.Context(), root, ops.NewToken{Name: "Ann", Role: "viewer"}); !errors.Is(err, jobs.Conflict) {
		t.Errorf("a second of the name: %v", err)
	}
	// Row 52: the last admin does not lock everybody out.
	list, err := d.Tokens(t.Context(), root)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	d.grant(ops.NewToken{Name: "Bob", Role: "admin", For: time.Hour})
	if err := d.Revoke(t.Context(), root, list[0].ID); !errors.Is(err, jobs.Conflict) {
		t.Errorf("the last admin without an end is revoked: %v", err)
	}
	if list, err := d.Tokens(t.Context(), root); err != nil || len(list) != 2 {
		t.Errorf("after the refusal there are %d tokens (%v)", len(list), err)
	}
}

// picky is a store that cannot be asked for what is no ID, as databases cannot be asked for bytes that are no text.
type picky struct{ metastore.Store }

func (p picky) Token(ctx context.Context, tenant jobs.Tenant, id string) (*kernel.Token, error) {
	if (kernel.Revoke{ID: id}).Check() != nil {
		return nil, errors.New("the database complains")
	}
	return p.Store.Token(ctx, tenant, id)
}

// A malformed token is a wrong token like any other, not a failure of the store, which would not count as a wrong try.
func TestTokensOfNonsense(t *testing.T) {
	d := newFixture(t)
	o := ops.New(ops.Config{Store: picky{d.store}})
	for _, id := range []string{"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", "abc\x00defg", "ABCDEFGH", "' OR 1=1", "a2b4c6d8"} {
		if _, err := o.Authenticate(t.Context(), "carillon_default_"+id+"_ABCDEFGHIJKLMNOPQRSTUVWXYZ"); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestSessions(t *testing.T) {
	d := newFixture(t)
	token, text := d.grant(ops.NewToken{Name: "Ann", Role: "operator"})
	in := func(cookie string) bool {
		t.Helper()
		who, err := d.SignedIn(t.Context(), cookie)
		if err != nil && !errors.Is(err, jobs.Forbidden) {
			t.Fatal(err)
		}
		return err == nil && who.Actor == "person:Ann" && who.Role == ops.Operator
	}
	sign := func() string {
		t.Helper()
		cookie, until, err := d.SignIn(t.Context(), text)
		if err != nil || !until.Equal(d.now.Add(12*time.Hour)) || strings.Contains(cookie, text[len(text)-26:]) {
			t.Fatalf("%q until %v (%v)", cookie, until, err)
		}
		return cookie
	}
	first, second := sign(), sign()
	if first == second || !in(first) || !in(second) {
		t.Errorf("%q and %q", first, second)
	}
	if in(text) || in("default."+text) || in(first+"A") || in("other"+strings.TrimPrefix(first, "default")) || in("") || in(".") {
		t.Error("what is no cookie is taken for one")
	}
	if err := d.SignOut(t.Context(), first); err != nil || in(first) || !in(second) {
		t.Errorf("signed out: %v", err)
	}
	if err := d.SignOut(t.Context(), first); err != nil {
		t.Errorf("signed out twice: %v", err)
	}
	if _, _, err := d.SignIn(t.Context(), text+"A"); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("a wrong token signs in: %v", err)
	}
	late := d.now
	d.now = d.now.Add(12 * time.Hour)
	if in(second) {
		t.Error("a session has no end")
	}
	d.now = late
	if err := d.Revoke(t.Context(), root, token.ID); err != nil || in(second) {
		t.Errorf("a session outlives its token (%v)", err)
	}
	_, short := d.grant(ops.NewToken{Name: "Cleo", Role: "viewer", For: time.Hour})
	if _, until, err := d.SignIn(t.Context(), short); err != nil || !until.Equal(d.now.Add(time.Hour)) {
		t.Errorf("a session lasts until %v (%v)", until, err)
	}
}

func TestAdmit(t *testing.T) {
	d := newFixture(t)
	for _, c := range []struct {
		want ops.NewToken
		role bus.Role
		app  string
	}{
		{ops.NewToken{Name: "w", Role: "worker", App: "billing"}, bus.Worker, "billing"},
		{ops.NewToken{Name: "any", Role: "worker"}, bus.Worker, ""},
		{ops.NewToken{Name: "c", Role: "client"}, bus.Client, ""},
		{ops.NewToken{Name: "ci", Role: "client", Scope: kernel.Scope{Keys: []string{"shop.*"}}}, "", ""}, // the bus cannot limit it
		{ops.NewToken{Name: "a", Role: "admin"}, "", ""},
		{ops.NewToken{Name: "v", Role: "viewer"}, "", ""},
	} {
		_, text := d.grant(c.want)
		p, app, err := d.Admit(t.Context(), text)
		if p.Role != c.role || app != c.app || (err == nil) != (c.role != "") || err == nil && p.Tenant != jobs.DefaultTenant {
			t.Errorf("%s: %+v %q (%v)", c.want.Role, p, app, err)
		}
		who, err := d.Authenticate(t.Context(), text)
		if who.Role.String() != c.want.Role || err != nil {
			t.Errorf("%s: %+v (%v)", c.want.Role, who, err)
		}
		// Tokens of programs are for no browser.
		if _, _, err := d.SignIn(t.Context(), text); (err == nil) != who.Role.Covers(ops.Viewer) {
			t.Errorf("%s signs in: %v", c.want.Role, err)
		}
		if _, _, err := d.Admit(t.Context(), text+"A"); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("%s with a wrong secret: %v", c.want.Role, err)
		}
	}
}

func TestSealFollowsTheOldestToken(t *testing.T) {
	d := newFixture(t)
	seal := func(who ops.Who) string {
		t.Helper()
		key, err := d.Seal(t.Context(), who)
		if err != nil || len(key) != 32 {
			t.Fatal(key, err)
		}
		return string(key)
	}
	none := seal(root)
	d.grant(ops.NewToken{Name: "a", Role: "admin"})
	one := seal(root)
	d.now = d.now.Add(time.Second)
	d.grant(ops.NewToken{Name: "0", Role: "admin"})
	if one == none || seal(root) != one || seal(ops.Who{Tenant: "other", Role: ops.Admin}) == none {
		t.Error("the seal does not follow the oldest token of the tenant")
	}
}

func TestDelete(t *testing.T) {
	for _, c := range []struct {
		name     string
		k        kernel.Delete
		liveRuns ops.LiveRuns
		want     jobs.Code // "" = deleted
		runs     jobs.State
		n        int
	}{
		{"without a word", kernel.Delete{Key: "app.work"}, "", jobs.Conflict, jobs.Enqueued, 0},
		{"an old revision", kernel.Delete{Key: "app.work", IfRevision: 7}, ops.CancelLiveRuns, jobs.Stale, jobs.Enqueued, 0},
		{"another word", kernel.Delete{Key: "app.work"}, "keep", jobs.BadInput, jobs.Enqueued, 0},
		{"unknown", kernel.Delete{Key: "app.nothing"}, ops.CancelLiveRuns, jobs.NotFound, jobs.Enqueued, 0},
		{"cancel", kernel.Delete{Key: "app.work", IfRevision: 1}, ops.CancelLiveRuns, "", jobs.Cancelled, 300},
		{"finish", kernel.Delete{Key: "app.work"}, ops.FinishLiveRuns, "", jobs.Enqueued, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newFixture(t)
			var ids []jobs.ID
			for range 300 { // more than a page
				d.now = d.now.Add(time.Millisecond)
				ids = append(ids, d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID)
			}
			done, err := d.Delete(t.Context(), ann, c.k, c.liveRuns)
			if done.Cancelled != c.n || (err == nil) != (c.want == "") || err != nil && !errors.Is(err, c.want) {
				t.Errorf("%+v (%v)", done, err)
			}
			if c.liveRuns == "" && !strings.Contains(err.Error(), "300 live runs") {
				t.Errorf("it does not say how many: %v", err)
			}
			for _, id := range ids {
				if run, err := d.Run(t.Context(), ann, id); err != nil || run.State != c.runs {
					t.Fatalf("a run is %s (%v)", run.State, err)
				}
			}
			if _, err := d.Job(t.Context(), ann, "app.work", 0); errors.Is(err, jobs.NotFound) != (c.want == "") {
				t.Errorf("the job is there: %v", err)
			}
			// One line about the deletion, and none for each run.
			audits, err := d.Audits(t.Context(), ann, metastore.AuditQuery{Actor: ann.Actor, Limit: 200})
			if want := map[bool]int{true: 1, false: 0}[c.want == ""]; err != nil || len(audits) != want {
				t.Errorf("the record has %d lines (%v)", len(audits), err)
			}
		})
	}
}

func TestPauseOfATriggeredJob(t *testing.T) {
	for _, c := range []struct {
		held  ops.Held
		state jobs.State
		let   ops.Let
	}{{"", jobs.Enqueued, ops.Let{Released: 3}}, {ops.HeldRelease, jobs.Enqueued, ops.Let{Released: 3}}, {ops.HeldDiscard, jobs.Cancelled, ops.Let{Discarded: 3}}} {
		d := newFixture(t)
		if _, err := d.Pause(t.Context(), ann, kernel.Pause{Key: "app.work"}); err != nil {
			t.Fatal(err)
		}
		var held []jobs.ID
		for range 3 {
			d.now = d.now.Add(time.Millisecond)
			held = append(held, d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID)
		}
		if byHand, err := d.Trigger(t.Context(), ann, kernel.Create{Key: "app.work", Origin: kernel.FromPerson}); err != nil || byHand.State != jobs.Enqueued {
			t.Errorf("a run by hand is %v (%v)", byHand, err)
		}
		if run, err := d.Run(t.Context(), ann, held[0]); err != nil || run.State != jobs.Scheduled || run.Cause != kernel.ByPause {
			t.Fatalf("%+v (%v)", run, err)
		}
		if _, _, err := d.Resume(t.Context(), ann, "app.work", ops.Resumption{Held: "keep"}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("another word: %v", err)
		}
		if job, let, err := d.Resume(t.Context(), ann, "app.work", ops.Resumption{Held: c.held}); err != nil || let != c.let || job.Paused != nil {
			t.Errorf("%q: %+v (%v)", c.held, let, err)
		}
		d.release()
		for _, id := range held {
			if run, err := d.Run(t.Context(), ann, id); err != nil || run.State != c.state {
				t.Errorf("%q: a held run is %s (%v)", c.held, run.State, err)
			}
		}
	}
}
