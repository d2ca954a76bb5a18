package metastore_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// What a job may not be is refused by every command that makes or changes one.
func TestPoliciesByEveryCommand(t *testing.T) {
	both := kernel.Settings{HTTP: new(json.RawMessage(`{"request":[{"url":"http://shop.example/"}]}`)), Exec: new(json.RawMessage(`{"command":["id"]}`))}
	handled := kernel.Settings{Handler: new("shop.tick"), Exec: both.Exec}
	scheduled := kernel.Settings{Schedule: new("@daily")}
	child := kernel.Settings{Parent: new("shop.job")}
	w := newSenderWorld(t)
	w.must(kernel.Edit{Key: "shop.job", Set: kernel.Settings{Parent: new("shop.later")}})
	created := func(set kernel.Settings) kernel.Register {
		k := registers("shop", "shop.later", kernel.Triggered)
		k.Worker, k.Set = kernel.NoWorker, set
		return k
	}
	declared := registers("shop", "shop.later", kernel.Triggered)
	declared.Job.Code.Parent = child.Parent
	w.must(registers("shop", "shop.new", kernel.Triggered))
	for _, c := range []struct {
		text string
		k    kernel.Command
	}{
		{"has both http and exec", kernel.Edit{Key: "shop.new", Set: both}},
		{"has both http and exec", created(both)},
		{"has both exec and the handler", kernel.Edit{Key: "shop.new", Set: handled}},
		{"has both exec and the handler", created(handled)},
		{"is triggered: it has no schedule", kernel.Edit{Key: "shop.new", Set: scheduled}},
		{"is triggered: it has no schedule", created(scheduled)},
		{"would belong to itself: shop.later > shop.job > shop.later", created(child)},
		{"would belong to itself: shop.later > shop.job > shop.later", declared},
	} {
		before := w.engine.Hash()
		if err := w.send(nil, "default", c.k); err == nil || !strings.Contains(err.Error(), c.text) || w.engine.Hash() != before {
			t.Errorf("%s: %v, want %q and no change", c.k.Verb(), err, c.text)
		}
	}
}

// The secret of a target of alarms stays with its host, also if two edits come at once.
func TestSecretStaysWithItsHost(t *testing.T) {
	w := newSenderWorld(t)
	set := func(url, secret string) error {
		return w.send(nil, "default", kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "hook", Kind: "webhook", URL: url, Secret: secret}})
	}
	for _, c := range []struct {
		url, secret string
		ok          bool
	}{
		{"https://ours.example/a", "key", true}, {"https://ours.example/b", "", true}, {"", "", true}, {"https://OURS.example?c", "", true},
		{"https://theirs.example/a", "", false}, {"https://ours.example:8443/a", "", false}, {"https://ours.example@theirs.example/a", "", false},
		{`https://theirs.example\@ours.example/a`, "", false}, {"https://theirs.example/a", "other", true}, {"https://ours.example/a", "", false},
	} {
		if err := set(c.url, c.secret); (err == nil) != c.ok || err != nil && jobs.CodeOf(err) != jobs.BadInput {
			t.Errorf("%q with secret %q: %v", c.url, c.secret, err)
		}
	}
}
