package browsertest

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Text that wants to be markup is text, whatever field it came by: no dialog, no complaint of the policy, no request.
func TestHostileText(t *testing.T) {
	deeds := jobs.NewTriggered(jobs.TriggeredFunc[map[string]string](func(ctx context.Context, args map[string]string) error {
		jobs.Log(ctx).Error(hostile, "where", hostile)
		jobs.Progress(ctx, 1, 2, hostile)
		if args["end"] == "well" {
			return jobs.Result(ctx, map[string]string{hostile: hostile})
		}
		if args["end"] == "never" {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return errHostile
	}), jobs.Options{Key: "shop.hostile", Name: hostile, Description: hostile, Tags: []string{"a", hostile[:30]}, Args: map[string]string{"x": hostile}})
	clock := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return errHostile }), jobs.Options{Key: "shop.tick", Cron: "*/2 * * * * *", Description: hostile})
	h := open(t, deeds, clock)
	ctx := t.Context()
	mean := ops.Who{Actor: "person:" + hostile, Role: ops.Admin, Reason: hostile}
	bad := h.start("shop.hostile", "")
	h.becomes(bad.ID, jobs.Terminated)
	good := h.start("shop.hostile", `{"end":"well"}`)
	h.becomes(good.ID, jobs.Succeeded)
	busy := h.start("shop.hostile", `{"end":"never"}`)
	h.becomes(busy.ID, jobs.Processing)
	cancelled := h.start("shop.hostile", `{"end":"never"}`)
	h.becomes(cancelled.ID, jobs.Processing)
	if _, err := h.Ops().Cancel(ctx, mean, cancelled.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Ops().Pause(ctx, mean, kernel.Pause{Key: "shop.tick", Reason: hostile, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Ops().Grant(ctx, mean, ops.NewToken{Name: hostile[:60], Role: kernel.RoleViewer}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Ops().SetCalendar(ctx, mean, kernel.SetCalendar{Name: "holidays", Description: hostile, Rules: []string{"12-25 # " + hostile}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Ops().Edit(ctx, mean, kernel.Edit{Key: "shop.tick", Set: kernel.Settings{Calendars: new([]string{"holidays"}), Description: new(hostile + "!")}}); err != nil {
		t.Fatal(err)
	}

	b := h.newTab(true)
	b.expect("404") // where a path names nothing
	b.expect("422")
	q := url.QueryEscape(hostile)
	for _, path := range []string{"/", "/jobs", "/jobs/shop.hostile", "/jobs/shop.tick", "/jobs/shop.hostile/run", "/jobs/shop.hostile/edit", "/jobs/shop.hostile/pause", "/jobs/shop.hostile/delete", "/runs", "/runs/" + bad.ID.String(), "/runs/" + good.ID.String(), "/runs/" + busy.ID.String(),
		"/runs/" + cancelled.ID.String(), "/jobs/shop.tick/versions", "/jobs/shop.tick/backfill?from=" + q + "&to=" + q + "&reason=" + q, "/calendars", "/calendars/holidays", "/outbox", "/forecast?at=" + q, "/stats?job=shop.hostile", "/stats?app=" + q, "/runs?arg=" + q, "/cluster", "/new",
		"/workers", "/settings", "/access", "/audit", "/jobs?q=" + q, "/jobs?tag=" + q, "/search?q=" + q, "/runs?job=" + q + "&worker=" + q + "&from=" + q,
		"/runs/" + bad.ID.String() + "?find=" + q, "/runs?bulk=cancel&n=1&no=2&why=" + q, "/audit?target=" + q + "&actor=" + q, "/?did=" + q, "/" + url.PathEscape(hostile), "/jobs/" + url.PathEscape(hostile)} {
		b.open(path)
		if n := ask[int](b, `document.querySelectorAll("img[src=x], svg[onload], script:not([src]), [onerror]").length`); n > 0 {
			t.Errorf("%s has %d elements that came from a text", path, n)
		}
	}
	b.open("/calendars/holidays")
	b.sees(hostile)
	b.open("/jobs/shop.tick/versions")
	b.sees(hostile)
	b.open("/runs/" + bad.ID.String())
	b.streams()
	if shown := b.text(); strings.Count(shown, hostile) < 3 { // error, log, arguments
		t.Errorf("the texts are not shown as they are:\n%s", shown)
	}
	// And what a script puts into the page afterwards is text, too.
	if _, err := h.Ops().Again(ctx, mean, bad.ID, nil, ""); err != nil {
		t.Fatal(err)
	}
	b.until("the page has changed", `!!document.querySelector("#children a")`)
	b.open("/jobs/shop.hostile/run?from=" + bad.ID.String())
	b.write("#args", hostile)
	b.leads(button("Start run"))
	b.sees("not valid JSON")
	if typed := ask[string](b, `document.querySelector("#args").value`); typed != hostile {
		t.Errorf("typed again is %q", typed)
	}
}
