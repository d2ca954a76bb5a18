package httpjob_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// notified is a job with a notification that carries a secret.
const notified = `{"request":[{"url":"FAR/x"}],"notification":[{"method":"POST","url":"FAR/noted","stateEquals":"200","headers":{"X-Key":"${secret:KEY}"},"body":"${schedulingNotifyBody}|json"}]}`

// A notification carries secrets and is trusted by its recipients. No person, program or job starts one: only the
// worker that has the run.
func TestNoWorkerForgesANotification(t *testing.T) {
	p := newSite(t, "", func(int, seen) (int, string) { return 200, `{}` })
	p.make("work", notified, kernel.Settings{})
	key := string(kernel.NotifyKey(httpjob.App))
	p.until("its worker is there", func() bool { status, _ := p.get("/jobs/" + key); return status == 200 })
	run := p.run("work", "")
	genuine := p.notices(run.ID, 1)[0]
	before := len(p.got()) // the request and its notification
	call := json.RawMessage(strings.ReplaceAll(`{"method":"POST","url":"FAR/noted","headers":{"X-Key":"${secret:KEY}"},"body":"${schedulingNotifyBody}|json"}`, "FAR", p.far.URL))
	forged := map[string]any{"run": run.ID.String(), "job": "work", "due": 0, "body": map[string]any{"state": "200", "call": call, "notice": map[string]any{"forged": true}}}
	for what, ask := range map[string]struct {
		path   string
		body   any
		status int
	}{
		"a trigger":                         {"/jobs/" + key + "/trigger", map[string]any{"args": forged}, 403},
		"a trigger, with its own arguments": {"/jobs/" + key + "/trigger", map[string]any{"args": json.RawMessage(genuine.Args)}, 403},
		"a bulk":                            {"/runs", map[string]any{"items": []any{map[string]any{"job": key, "args": forged}}}, 403},
		"the seed's trigger":                {"/seed/jobs/" + key + "/trigger", forged, 403},
		"the seed's document":               {"/seed/jobs/" + key, map[string]any{"request": []any{map[string]any{"url": p.far.URL}}}, 409},
		"another system job":                {"/jobs", map[string]any{"key": "carillon.evil", "kind": "triggered", "app": "http"}, 422},
		"on success":                        {"/jobs", map[string]any{"key": "evil", "kind": "triggered", "app": "http", "onSuccess": []string{key}}, 422},
		"on failure":                        {"/jobs", map[string]any{"key": "evil", "kind": "triggered", "app": "http", "onFailure": []string{key}}, 422},
		"a file":                            {"/apply", map[string]any{"jobs": []any{map[string]any{"key": "evil", "kind": "triggered", "app": "http", "onSuccess": []string{key}}}}, 422},
		"a backfill":                        {"/jobs/" + key + "/backfill", map[string]any{"from": "2026-11-01T00:00:00Z"}, 409},
		"again, differently":                {"/runs/" + genuine.ID.String() + "/retry", map[string]any{"args": forged}, 403},
		"a worker over HTTP":                {"/worker/register", map[string]any{"name": "w", "start": "a", "app": "other", "slots": 1, "jobs": []any{map[string]any{"key": key, "kind": "triggered", "version": 99}}}, 422},
	} {
		if status, text := p.post(ask.path, ask.body); status != ask.status && !(ask.status == 403 && strings.HasPrefix(ask.path, "/seed") && status >= 400) {
			t.Errorf("%s: %d %s, want %d", what, status, text, ask.status)
		}
	}
	raw, err := json.Marshal(forged)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.s.Client().Enqueue(t.Context(), jobs.Request{Key: jobs.Key(key), Args: raw}); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("a program: %v", err)
	}
	if all := p.got(); len(all) != before {
		t.Errorf("called %+v", all[before:])
	}

	// What was sent once may be sent again, unchanged.
	if status, text := p.post("/runs/"+genuine.ID.String()+"/retry", map[string]any{}); status != 201 {
		t.Fatalf("again: %d %s", status, text)
	}
	p.until("it is sent again", func() bool { return len(p.got()) > before })
	if all := p.got(); all[before].body != all[before-1].body || all[before].header.Get("X-Key") != "s3cret" {
		t.Errorf("sent %s, then %s", all[before-1].body, all[before].body)
	}
}

// get reads from the API.
func (p *site) get(path string) (int, string) {
	p.t.Helper()
	answer, err := http.Get(p.door.URL + "/api/v1" + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	var raw json.RawMessage
	_ = json.NewDecoder(answer.Body).Decode(&raw)
	return answer.StatusCode, string(raw)
}
