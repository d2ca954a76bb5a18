package browsertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// furnishings are a scheduler that has something on each page.
type furnishings struct {
	*fixture
	admin string // the token of an administrator of the server
	views []view
}

// view is a page of a furnished scheduler.
type view struct{ name, path string }

// furnished starts a scheduler that has failed and active runs, graphs, alarms, calendars, tenants, tokens, HTTP and
// command jobs.
func furnished(t *testing.T) *furnishings {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "accepted") }))
	t.Cleanup(service.Close)
	simple := jobs.TriggeredFunc[struct{}](pass)
	flow := []jobs.Job{
		jobs.NewTriggered(simple, jobs.Options{Key: "flow.extract", OnSuccess: []string{"flow.clean", "flow.load"}}),
		jobs.NewTriggered(simple, jobs.Options{Key: "flow.clean"}),
		jobs.NewTriggered(jobs.TriggeredFunc[struct{}](refuse), jobs.Options{Key: "flow.load", OnFailure: []string{"flow.undo"}, Retries: jobs.None}),
		jobs.NewTriggered(simple, jobs.Options{Key: "flow.undo"}),
		jobs.NewTriggered(simple, jobs.Options{Key: "flow.report-with-a-rather-long-name", After: []string{"flow.clean", "flow.load:ended"}}),
	}
	for i := range 6 {
		flow = append(flow, jobs.NewRecurring(jobs.RecurringFunc(count), jobs.Options{Key: jobs.Key(fmt.Sprintf("crowd.job-%d", i)), Cron: "0 0 * * * *", Calendars: []string{"holidays"}}))
	}
	h := build(t, embed.Config{Tokens: true, Alarms: alarms.Config{Allow: func(netip.AddrPort) error { return nil }}}, append(shop(), flow...)...)
	_, err := h.Ops().SetCalendar(ctx, ann, kernel.SetCalendar{Name: "holidays", Description: "Days without deliveries.", Zone: "Europe/Berlin", Rules: []string{"12-25", "easter+1", "SAT,SUN 00:00-06:00"}})
	must(err)
	must(h.Ops().SetAlarmTarget(ctx, ann, kernel.AlarmTarget{Name: "duty", Kind: string(alarms.Webhook), URL: service.URL + "/hook"}, true))
	must(h.Ops().SetAlarmTarget(ctx, ann, kernel.AlarmTarget{Name: "office", Kind: string(alarms.Webhook), URL: "http://127.0.0.1:9/unreachable"}, false))
	must(h.Ops().SetAlarmRule(ctx, ann, kernel.AlarmRule{Name: "billing-nights", Kind: kernel.AlarmSlow, Factor: 3, Targets: []string{"duty", "office"}, Urgent: true, Quiet: kernel.Quiet{From: "22:00", To: "07:00"}, Zone: "Europe/Berlin"}))
	// A run each second would make the lists long, and the rows are alike.
	for _, p := range []kernel.Pause{{Key: "shop.newsletter", Reason: "the designer is on holiday", Until: time.Now().Add(72 * time.Hour)}, {Key: "shop.count"}} {
		_, err = h.Ops().Pause(ctx, ann, p)
		must(err)
	}
	_, _, err = h.Ops().CreateTenant(ctx, ann, ops.NewTenant{Name: "acme", Title: "Acme Ltd", Limits: kernel.TenantLimits{Jobs: 5}})
	must(err)
	_, _, err = h.Ops().CreateTenant(ctx, ann, ops.NewTenant{Name: "globex"})
	must(err)
	_, err = h.Ops().SuspendTenant(ctx, ann, "globex", true)
	must(err)
	_, _, err = h.Ops().Grant(ctx, ann, ops.NewToken{Name: "billing-worker", Role: kernel.RoleWorker, App: "shop"})
	must(err)
	_, admin, err := h.Ops().Grant(ctx, ann, ops.NewToken{Name: "ann", Role: kernel.RoleAdmin})
	must(err)

	bad := h.start("shop.charge", `{"customer":"c9","cents":-5}`)
	h.start("shop.charge", `{"customer":"c1","cents":1250}`)
	busy := h.start("shop.pack", "")
	_, err = h.Ops().Trigger(ctx, ann, kernel.Create{Key: "shop.charge", Parent: busy.ID, Args: []byte(`{"customer":"c2","cents":-1}`)})
	must(err)
	_, err = h.Ops().Trigger(ctx, ann, kernel.Create{Key: "shop.charge", Delay: 3 * time.Hour})
	must(err)
	for i, name := range []string{"payroll 2026-11", "a batch with a rather long name that has to break on narrow screens", ""} {
		batch, err := h.Ops().OpenBatch(ctx, ann, kernel.OpenBatch{ID: jobs.NewID(time.Now()), Name: name, Then: "flow.clean"})
		must(err)
		for range 3 + i {
			_, err = h.Ops().Trigger(ctx, ann, kernel.Create{Key: "shop.charge", Batch: batch.ID, Args: []byte(`{"customer":"c2","cents":` + []string{"1", "-1"}[i%2] + `}`)})
			must(err)
		}
		if i < 2 {
			_, err = h.Ops().CloseBatch(ctx, ann, batch.ID)
			must(err)
		}
	}
	first := h.start("flow.extract", "")
	h.becomes(bad.ID, jobs.Terminated)
	h.becomes(busy.ID, jobs.Processing)
	h.becomes(first.ID, jobs.Succeeded)
	h.until("the last job of the graph has run", func() bool {
		list := h.runs("flow.report-with-a-rather-long-name")
		return len(list) > 0 && list[0].State == jobs.Succeeded
	})

	f := &furnishings{fixture: h, admin: admin}
	b := f.tab(t)
	for name, work := range map[string]string{"shop.ping": "/new", "shop.backup": "/new/command"} {
		b.open(work)
		b.write(field("key"), name)
		if work == "/new" {
			b.write(field("request.0.url"), "https://shop.example.com/orders/that/have/a/long/name/so/that/lines/break/${jobId}")
		} else {
			b.write(field("argv"), "/opt/jobs/backup\n--all")
		}
		b.leads(`//button[@name="do" and @value="save" and not(@hidden)]`)
		b.sees("Saved.")
	}
	_, err = h.Ops().Edit(ctx, ann, kernel.Edit{Key: "shop.close-day", Set: kernel.Settings{Schedule: new("0 45 2 * * *"), Timeout: new(time.Minute)}})
	must(err)
	h.until("an alarm is open, and its target has accepted it", func() bool {
		list, err := h.Ops().Alarms(ctx, ann, metastore.OpenAlarm, 0, 10)
		return err == nil && len(list) > 0 && len(list[0].Sent) > 0
	})
	f.views = []view{
		{"overview", "/"}, {"jobs", "/jobs"}, {"jobs-filtered", "/jobs?q=shop.*&state=active"}, {"jobs-none", "/jobs?q=nothing"},
		{"job", "/jobs/shop.charge"}, {"job-recurring", "/jobs/shop.close-day"}, {"job-paused", "/jobs/shop.newsletter"}, {"job-graph", "/jobs/flow.load"},
		{"job-http", "/jobs/shop.ping"}, {"job-command", "/jobs/shop.backup"}, {"job-run", "/jobs/shop.charge/run"}, {"job-run-json", "/jobs/shop.charge/run?as=json"},
		{"job-pause", "/jobs/shop.charge/pause"}, {"job-edit", "/jobs/shop.close-day/edit"}, {"job-requests", "/jobs/shop.ping/requests"}, {"job-new", "/jobs/shop.charge/new"},
		{"job-versions", "/jobs/shop.close-day/versions"}, {"job-backfill", "/jobs/shop.close-day/backfill"}, {"job-delete", "/jobs/shop.pack/delete"},
		{"new-http", "/new"}, {"new-command", "/new/command"},
		{"bulk-pause", "/bulk/jobs/pause?q=shop.*"}, {"bulk-resume", "/bulk/jobs/resume?q=shop.*"}, {"bulk-trigger", "/bulk/jobs/trigger?q=shop.*"}, {"bulk-delete", "/bulk/jobs/delete?q=shop.*"},
		{"bulk-cancel", "/bulk/runs/cancel?job=shop.*"}, {"bulk-retry", "/bulk/runs/retry?job=shop.*"},
		{"runs", "/runs"}, {"runs-filtered", "/runs?state=Terminated&job=shop.*&from=2026-01-01T00%3A00&zone=UTC"}, {"runs-invalid", "/runs?job=a+b&from=x"}, {"batches", "/batches"},
		{"run-failed", "/runs/" + bad.ID.String()}, {"run-busy", "/runs/" + busy.ID.String()}, {"run-graph", "/runs/" + first.ID.String()},
		{"alarms", "/alarms"}, {"alarm-targets-new", "/alarms/targets/new"}, {"alarm-target-new", "/alarms/targets/new?kind=email"}, {"alarm-target", "/alarms/targets/duty"},
		{"alarm-rules-new", "/alarms/rules/new"}, {"alarm-rule-new", "/alarms/rules/new?kind=expected"}, {"alarm-rule", "/alarms/rules/billing-nights"},
		{"stats", "/stats"}, {"forecast", "/forecast"}, {"day", "/forecast/day"}, {"calendars", "/calendars"}, {"calendar", "/calendars/holidays"}, {"calendar-new", "/calendars/new"},
		{"workers", "/workers"}, {"cluster", "/cluster"}, {"outbox", "/outbox"}, {"settings", "/settings"}, {"access", "/access"}, {"tenants", "/tenants"}, {"tenant", "/tenants/acme"},
		{"tenant-suspended", "/tenants/globex"}, {"audit", "/audit"}, {"session", "/session"}, {"login", "/login"}, {"missing", "/no-such-page"},
	}
	return f
}

// tab opens a tab of the administrator for a test.
func (f *furnishings) tab(t *testing.T) *tab {
	t.Helper()
	b := (&fixture{t: t, Scheduler: f.Scheduler, url: f.url}).newTab(true)
	b.expect("404") // one of the views
	b.open("/login")
	b.write("#token", f.admin)
	b.leads(button("Sign in"))
	return b
}

func pass(context.Context, struct{}) error { return nil }

func refuse(context.Context, struct{}) error {
	return errors.New("the table orders is locked by another session")
}

// show opens a page; one that does not exist is a page, too.
func (b *tab) show(v view) {
	b.t.Helper()
	want := 200
	switch v.name {
	case "missing":
		want = 404
	case "runs-invalid":
		want = 422
		b.expect("422")
	}
	if status := b.open(v.path); int(status) != want {
		b.t.Errorf("%s is answered by %d, want %d", v.path, status, want)
	}
}

// TestGallery makes pictures of all pages for people to look at:
//
//	go test -run TestGallery -gallery /tmp/gallery
func TestGallery(t *testing.T) {
	if *gallery == "" {
		t.Skip("no -gallery")
	}
	f := furnished(t)
	b := f.tab(t)
	for _, v := range f.views {
		for _, th := range []theme{light, dark} {
			for _, width := range []int64{390, 1400} {
				b.look(th, width)
				b.show(v)
				if strings.HasSuffix(v.name, "-filtered") && th == light && ask[bool](b, `!!document.querySelector(".saved summary")`) {
					b.unfold(`//summary[contains(., "Save filter")]`)
					b.save(filepath.Join(*gallery, fmt.Sprintf("%s-menu-%d.png", v.name, width)), width, 900)
					b.write("#filter-name", "failed billing")
					b.press(kb.Enter)
				}
				if !strings.HasPrefix(v.name, "missing") && v.name != "login" {
					b.streams()
				}
				tall := min(ask[int](b, "document.documentElement.scrollHeight"), 4000)
				b.save(filepath.Join(*gallery, fmt.Sprintf("%s-%d-%s.png", v.name, width, th)), width, int64(max(tall, 700)))
			}
		}
	}
}
