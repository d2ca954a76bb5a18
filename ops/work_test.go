package ops_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

func raw(text string) *json.RawMessage { return new(json.RawMessage(text)) }

// A command is checked before it is stored, however it is set, and the error names the place. A job has one of http,
// exec and a handler.
func TestWorkIsChecked(t *testing.T) {
	d := newFixture(t)
	declare := func(key jobs.Key, set kernel.Settings) error {
		_, err := d.Declare(t.Context(), ann, []ops.Wanted{{Key: key, Kind: kernel.Triggered, App: "exec", Set: set}}, ops.How{})
		return err
	}
	if err := declare("backup", kernel.Settings{Exec: raw(`{"argv":["backup"]}`)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set         kernel.Settings
		place, says string
	}{
		{kernel.Settings{Exec: raw(`{"argv":[""]}`)}, "exec.argv[0]", "is empty"},
		{kernel.Settings{Exec: raw(`{"argv":["a"],"script":"b"}`)}, "exec.script", "together with argv"},
		{kernel.Settings{Exec: raw(`{"argv":["a"],"limits":{"memory":-1}}`)}, "exec.limits.memory", "is negative"},
		{kernel.Settings{Exec: raw(`{"arg":["a"]}`)}, "exec", "unknown field"},
		{kernel.Settings{Exec: raw(`{"argv":["a"]}`), Handler: new("app.work")}, "", "has both exec and the handler app.work"},
		{kernel.Settings{Exec: raw(`{"argv":["a"]}`), HTTP: raw(`{"request":[{"url":"https://example.com/"}]}`)}, "", "has both http and exec"},
	} {
		_, edited := d.Edit(t.Context(), ann, kernel.Edit{Key: "backup", Set: c.set})
		for what, err := range map[string]error{"declared": declare("other", c.set), "applied": declare("backup", c.set), "edited": edited} {
			var at string
			if e, ok := errors.AsType[*ops.WorkError](err); ok {
				at = e.Path()
			}
			if jobs.CodeOf(err) != jobs.BadInput || at != c.place || !strings.Contains(err.Error(), c.place) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s %s: %v at %q, want %q at %q", what, *c.set.Exec, err, at, c.says, c.place)
			}
		}
	}
	if _, err := d.Edit(t.Context(), ann, kernel.Edit{Key: "backup", Set: kernel.Settings{HTTP: raw(`{"request":[{"url":"https://example.com/"}]}`)}}); err == nil {
		t.Error("http is added to a job with exec")
	}
	if _, err := d.Edit(t.Context(), ann, kernel.Edit{Key: "backup", Set: kernel.Settings{Exec: raw(`{}`), Handler: new("app.work")}}); err != nil {
		t.Errorf("a handler instead of the command: %v", err)
	}
	if _, err := d.Edit(t.Context(), ann, kernel.Edit{Key: "backup", Set: kernel.Settings{Exec: raw(`{"argv":["a"]}`)}}); err == nil {
		t.Error("exec is added to a job with a handler")
	}
}

// Without a worker that runs commands, the job, its explanation and that of a run name the way to start one.
func TestCommandsWaitForTheirWorker(t *testing.T) {
	d := newFixture(t)
	live := &members{}
	o := ops.New(ops.Config{Store: d.store, Live: live})
	const hint = "no online worker of the app exec runs commands: start carillon worker --exec"
	made, err := o.Declare(t.Context(), ann, []ops.Wanted{{Key: "backup", Kind: kernel.Triggered, App: "exec", Set: kernel.Settings{Exec: raw(`{"argv":["backup"]}`)}}}, ops.How{})
	if err != nil || !slices.Contains(made[0].Job.Warnings, hint) {
		t.Errorf("declared: %+v, %v", made, err)
	}
	run := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "backup"}).ID
	for only, missing := range map[string]bool{kernel.WorkHTTP: true, kernel.WorkExec: false, "": false} {
		live.workers = []ops.Worker{{WorkerInfo: bus.WorkerInfo{App: "exec", Name: "w1", Any: true, Only: only}}}
		e, err := o.Explain(t.Context(), ann, "backup")
		if err != nil || slices.Contains(e.Text, "No"+hint[2:]+".") != missing {
			t.Errorf("job with a worker of %q: %q, %v", only, e.Text, err)
		}
		r, err := o.ExplainRun(t.Context(), ann, run)
		if err != nil || (r.Why == "It waits: "+hint+".") != missing {
			t.Errorf("run with a worker of %q: %q, %v", only, r.Why, err)
		}
	}
}
