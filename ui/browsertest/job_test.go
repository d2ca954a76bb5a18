package browsertest

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A job that is paused in the browser stops within one period, and goes on when it is resumed.
func TestPause(t *testing.T) {
	h := open(t)
	h.until("shop.count fires", func() bool { return len(h.runs("shop.count")) > 0 })
	b := h.newTab(true)
	b.open("/jobs/shop.count")
	b.unfold(`//summary[contains(normalize-space(), "Pause")]`)
	b.write(field("reason"), "stocktaking")
	b.leads(`//details[@open]//button[normalize-space()="Pause"]`)
	b.sees("stocktaking")
	job, err := h.Ops().Job(t.Context(), ann, "shop.count", 0)
	if err != nil || job.Paused == nil || job.Paused.Reason != "stocktaking" {
		t.Fatalf("%+v (%v)", job.Paused, err)
	}
	paused := job.Paused.At
	h.until("three periods pass", func() bool { return h.Ops().Now().After(paused.Add(3 * time.Second)) })
	for _, in := range h.runs("shop.count") {
		if late := in.Created.Sub(paused); late > time.Second {
			t.Errorf("a run was made %v after the pause", late)
		}
	}
	b.unfold(`//summary[contains(normalize-space(), "Resume")]`)
	b.leads(`//details[@open]//button[normalize-space()="Resume and skip them"]`)
	h.until("shop.count fires again", func() bool { return h.runs("shop.count")[0].Due.After(paused.Add(3 * time.Second)) })
	b.open("/audit?target=job+shop.count")
	b.sees("stocktaking")
}

// A schedule that is edited in the browser is obeyed by the very next fire.
func TestEdit(t *testing.T) {
	h := open(t)
	before, err := h.Ops().Job(t.Context(), ann, "shop.close-day", 0)
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	fires := func() []*kernel.Run { // but that of the code's schedule, which may come at just this time of the day
		return slices.DeleteFunc(h.runs("shop.close-day"), func(in *kernel.Run) bool {
			return in.Revision == before.Revision && in.Due.In(berlin).Format(time.TimeOnly) == "02:30:00"
		})
	}
	b := h.newTab(true)
	b.open("/jobs/shop.close-day")
	b.sees("at 02:30, every day, Europe")
	b.leads(`//main//a[contains(@href, "/edit")]`)
	b.expect("422") // the answer to a preview of it
	b.write(field("schedule"), "*/2 * * * *  * * *")
	b.until("the mistake is shown while it is typed", `document.querySelector("[data-fault=schedule]").textContent !== ""`)
	b.write(field("schedule"), "*/2 * * * * *")
	b.until("the fires are shown before they are saved", `document.querySelectorAll("#preview .fires li").length === 10`)
	if n := len(fires()); n > 0 {
		t.Fatalf("the preview made %d runs", n)
	}
	b.write(field("reason"), "the auditors are here")
	b.leads(`//button[@name="do" and @value="save"]`)
	b.sees("every 2 seconds")
	job, err := h.Ops().Job(t.Context(), ann, "shop.close-day", 0)
	if err != nil {
		t.Fatal(err)
	}
	edited := job.Definition.Edited
	h.until("it fires", func() bool { return len(fires()) > 0 })
	list := fires()
	first := list[len(list)-1]
	if want := edited.Truncate(2 * time.Second).Add(2 * time.Second); !first.Due.Equal(want) || first.Revision != job.Revision {
		t.Errorf("edited at %v, it first fires at %v with revision %d; want %v and %d", edited, first.Due, first.Revision, want, job.Revision)
	}
	b.unfold(`//summary[contains(normalize-space(), "Follow the code")]`)
	b.leads(`//form[contains(@action, "/follow")]//button`)
	b.sees("at 02:30, every day, Europe")
}

// While debug mode holds recurring jobs, one that is run by hand from its page goes.
func TestRunNowInDebugMode(t *testing.T) {
	h := open(t)
	b := h.newTab(true)
	b.open("/settings")
	b.leads(button("Hold recurring jobs"))
	b.open("/jobs/shop.close-day")
	b.sees("Debug mode")
	b.leads(`//main//button[contains(normalize-space(), "Run now")]`)
	b.sees("Succeeded")
	byHand := 0
	runs := h.runs("shop.close-day")
	for _, in := range runs { // one of its own may have come before the jobs were held
		if in.Origin == kernel.FromPerson {
			byHand++
		}
	}
	if byHand != 1 {
		t.Errorf("%d runs by hand, %+v", byHand, runs)
	}
}

// A new user finds from the first page why a job failed, runs it again with other arguments, and pauses it until
// Monday. Each click and each field is counted; docs/dashboard.md has the number.
func TestNewcomer(t *testing.T) {
	h := open(t)
	bad := h.start("shop.charge", `{"customer":"c9","cents":-5}`)
	h.becomes(bad.ID, jobs.Terminated)
	b := h.newTab(true)
	began := time.Now()
	b.open("/")
	said := func(what string) {
		t.Logf("%-45s %2d clicks and fields, %v", what, b.clicks, time.Since(began).Round(100*time.Millisecond))
	}

	b.sees("the bank refused -5 cents: an amount must be positive") // on the first page already
	b.leads(`//a[normalize-space()="Details"]`)
	b.sees("the bank says no cents=-5") // its log, its arguments
	b.sees(`"cents": -5`)
	said("why it failed")

	b.leads(button("Run with other arguments"))
	b.write(field("a.cents"), "500")
	b.leads(button("Start run"))
	b.sees("R-c9")
	said("run again with other arguments")

	b.leads(`//nav[@class="crumbs"]//a[normalize-space()="shop.charge"]`)
	b.unfold(`//summary[contains(normalize-space(), "Pause")]`)
	b.click(`//details[@open]//*[self::label or self::option or self::input][contains(normalize-space(), "Monday") or @value="monday"]`)
	b.leads(`//details[@open]//button[normalize-space()="Pause"]`)
	b.sees("paused")
	said("paused until Monday")

	job, err := h.Ops().Job(t.Context(), ann, "shop.charge", 0)
	if err != nil || job.Paused == nil {
		t.Fatalf("it is not paused (%v)", err)
	}
	if until := job.Paused.Until; until.Weekday() != time.Monday || until.Sub(time.Now()) > 8*24*time.Hour { // on a Monday, the next one at nine
		t.Errorf("it is paused until %v", until)
	}
	if b.clicks > 9 {
		t.Errorf("it took %d clicks and fields; docs/dashboard.md says 8", b.clicks)
	}
}
