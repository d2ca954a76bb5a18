package embed_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// waiting is a request that is not answered at once.
type waiting struct {
	*httptest.ResponseRecorder
	ended chan time.Time
}

func wait(h http.Handler, r *http.Request) *waiting {
	w := &waiting{httptest.NewRecorder(), make(chan time.Time, 1)}
	go func() { h.ServeHTTP(w, r); w.ended <- time.Now() }()
	return w
}

// A request that waits for runs or streams events ends within a second of the revocation of its token, or the end of
// its session.
func TestRevocationEndsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{Tokens: true})
		ctx := t.Context()
		root := ops.Who{Actor: "person:root", Role: ops.Admin}
		tokens := map[string]string{} // by ID
		grant := func(n ops.NewToken) (id, text string) {
			t.Helper()
			token, text, err := o.Ops().Grant(ctx, root, n)
			if err != nil {
				t.Fatal(err)
			}
			tokens[token.ID] = text
			return token.ID, text
		}
		_, staying := grant(ops.NewToken{Name: "root", Role: "admin"})
		worker, ann := grant(ops.NewToken{Name: "ann", Role: "worker", App: "shop"})
		viewer, bob := grant(ops.NewToken{Name: "bob", Role: "viewer"})
		_, cid := grant(ops.NewToken{Name: "cid", Role: "viewer"})
		session, _, err := o.Ops().SignIn(ctx, bob)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := o.Ops().SignIn(ctx, cid)
		if err != nil {
			t.Fatal(err)
		}
		if status, response := o.post(ctx, "/worker/register", m{"name": "py", "start": "a1", "app": "shop", "slots": 1, "jobs": []any{m{"key": "greet", "kind": "triggered"}}},
			"Authorization", "Bearer "+ann); status != 200 {
			t.Fatal(status, response)
		}
		request := func(method, path, body, header, value string) *waiting {
			r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(header, value)
			return wait(o.Handler(), r)
		}
		poll := request("POST", "/api/v1/worker/poll", `{"worker":"py-a1","waitSeconds":30}`, "Authorization", "Bearer "+ann)
		ends := map[string]*waiting{
			"a poll":                    poll,
			"events":                    request("GET", "/api/v1/events", "", "Authorization", "Bearer "+bob),
			"events of a session":       request("GET", "/api/v1/events", "", "Cookie", api.SessionCookie+"="+session),
			"a page":                    request("GET", "/events", "", "Cookie", api.SessionCookie+"="+session),
			"a page that is signed out": request("GET", "/events", "", "Cookie", api.SessionCookie+"="+out),
		}
		stays := request("GET", "/api/v1/events", "", "Authorization", "Bearer "+staying)
		time.Sleep(3300 * time.Millisecond)
		for name, w := range ends {
			if len(w.ended) > 0 {
				t.Fatalf("%s ended before: %d %s", name, w.Code, w.Body)
			}
		}
		for _, id := range []string{worker, viewer} {
			if err := o.Ops().Revoke(ctx, root, id); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Ops().SignOut(ctx, out); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for name, w := range ends {
			if len(w.ended) == 0 {
				t.Errorf("%s goes on a second after its token ended", name)
			}
		}
		if len(poll.ended) > 0 && poll.Code != 401 {
			t.Errorf("the poll is answered by %d %s", poll.Code, poll.Body)
		}
		if len(stays.ended) > 0 {
			t.Errorf("events of another token ended: %d %s", stays.Code, stays.Body)
		}
		run := o.trigger(`{}`)
		time.Sleep(10 * time.Second)
		o.want(run, jobs.Enqueued, "", 0)
	})
}

// And so it is at every node of a cluster, by the node's own copy of the rows.
func TestRevocationReachesEveryNode(t *testing.T) {
	hub := membus.New()
	open := func(name, invitation string) *embed.Scheduler {
		t.Helper()
		s, err := embed.Start(t.Context(), embed.Config{Node: name, Dir: t.TempDir(), Tokens: true, Cluster: &embed.Cluster{Addr: freeport.Address(t), Token: invitation},
			Bus: func(_ context.Context, as bus.Principal) (bus.Bus, error) { return hub.As(as), nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	ctx, root := t.Context(), ops.Who{Actor: "person:root", Role: ops.Admin}
	a := open("a", "")
	var invitation ops.Invitation
	eventually(t, "a node is invited", func() (ok bool) {
		var err error
		invitation, err = a.Ops().Invite(ctx, root)
		return err == nil
	})
	b := open("b", invitation.Token)
	var id, text string
	n := 0
	eventually(t, "a token is granted", func() bool {
		n++ // what got no answer may have been granted
		token, made, err := a.Ops().Grant(ctx, root, ops.NewToken{Name: fmt.Sprint("ann", n), Role: "viewer"})
		if err == nil {
			id, text = token.ID, made
		}
		return err == nil
	})
	r := func() *http.Request {
		r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/events", nil)
		r.Header.Set("Authorization", "Bearer "+text)
		return r
	}
	var streams []*waiting
	for _, node := range []*embed.Scheduler{a, b} {
		eventually(t, "the token is known", func() bool {
			who := r().Clone(ctx)
			who.URL.Path = "/api/v1/whoami"
			w := httptest.NewRecorder()
			node.Handler().ServeHTTP(w, who)
			return w.Code == 200
		})
		streams = append(streams, wait(node.Handler(), r()))
	}
	eventually(t, "the token is revoked", func() bool {
		err := b.Ops().Revoke(ctx, root, id)
		return err == nil || jobs.CodeOf(err) == jobs.NotFound
	})
	for i, w := range streams {
		select {
		case <-w.ended:
		case <-time.After(2 * time.Minute):
			t.Fatalf("the stream at node %d goes on", i+1)
		}
	}
}

// Streams carry what changes in the tenant of their token, and nothing of another.
func TestStreamsAreOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{Tokens: true})
		own := o.bearer("", ops.NewToken{Name: "ann", Role: "viewer"})
		members := o.bearer("", ops.NewToken{Name: "crew", Role: "worker", App: "shop"})
		foreign := o.bearer("other", ops.NewToken{Name: "ann", Role: "viewer"})
		if status, response := o.post(t.Context(), "/worker/register", m{"name": "py", "start": "a1", "app": "shop", "slots": 1, "jobs": []any{m{"key": "greet", "kind": "triggered"}}}, members...); status != 200 {
			t.Fatal(status, response)
		}
		listen := func(as []string) *waiting {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/events", nil)
			r.Header.Set(as[0], as[1])
			return wait(o.Handler(), r)
		}
		here, there := listen(own), listen(foreign)
		time.Sleep(5 * time.Second)
		run := o.trigger(`{}`).String()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if body := here.Body.String(); !strings.Contains(body, run) {
			t.Errorf("a stream of the tenant does not carry the run: %s", body)
		}
		if body := there.Body.String(); there.Code != 200 || strings.Contains(body, run) || strings.Contains(body, "greet") || strings.Contains(body, "event: change") {
			t.Errorf("a stream of another tenant carries: %d %s", there.Code, body)
		}
	})
}
