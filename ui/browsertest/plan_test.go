package browsertest

import (
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// A calendar that is written in the browser says which jobs use it; what a job was before it used one is one of its
// versions, and holds again at a press. The forecast draws what is planned.
func TestCalendarForecastAndVersions(t *testing.T) {
	h := open(t)
	b := h.newTab(true)
	b.open("/calendars")
	b.sees("No calendars yet")
	b.leads(`//main//a[contains(@href, "/calendars/new")]`)
	b.write(field("name"), "always")
	b.write(field("rules"), "SUN-SAT # closed for good")
	b.leads(`//main//button[normalize-space()="Save"]`)
	b.sees("No job uses it")
	if list, err := h.Ops().Calendars(t.Context(), ann); err != nil || len(list) != 1 || !slices.Equal(list[0].Rules, []string{"SUN-SAT # closed for good"}) {
		t.Errorf("calendars are %+v, %v", list, err)
	}

	b.open("/forecast")
	b.sees("Planned fires")
	b.sees("the median minute has 60") // that of each second
	b.until("it is drawn", `document.querySelectorAll("#page figure svg").length > 0`)
	if _, err := h.Ops().Edit(t.Context(), ann, kernel.Edit{Key: "shop.count", Set: kernel.Settings{Calendars: new([]string{"always"})}}); err != nil {
		t.Fatal(err)
	}
	b.open("/calendars/always")
	b.sees("shop.count")

	b.open("/jobs/shop.count/versions")
	b.sees("Revision 2 current")
	b.sees("always")
	b.leads(`//main//a[starts-with(normalize-space(), "Roll back to revision")]`)
	b.leads(`//main//button[starts-with(normalize-space(), "Roll back to revision")]`)
	h.until("the job is as it was", func() bool {
		job, err := h.Ops().Job(t.Context(), ann, "shop.count", 0)
		return err == nil && !slices.Contains(job.Policy.Calendars, "always")
	})
	b.open("/calendars/always")
	b.sees("No job uses it")
	b.leads(`//main//button[contains(normalize-space(), "Delete this calendar")]`)
	b.open("/calendars")
	b.sees("No calendars yet")
}
