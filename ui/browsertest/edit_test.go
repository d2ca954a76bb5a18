package browsertest

import (
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

func (h *fixture) definition(key jobs.Key) *kernel.Definition {
	h.t.Helper()
	list, err := h.Ops().Job(h.t.Context(), ops.Who{}, key, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	return list.Definition
}

// While a user types a schedule, the page shows when it would fire, or its error; nothing is stored until they save.
func TestEditShowsWhatItWouldDo(t *testing.T) {
	h := open(t)
	b := h.newTab(true)
	b.open("/jobs/shop.close-day")
	b.leads(button("Edit"))
	b.streams()
	b.write(field("schedule"), "0 0 3 29 MAR *")
	b.sees("29 Mar")
	b.expect("422")
	b.write(field("schedule"), "61 * * * *")
	b.until("what is wrong stands beside it", `document.querySelector("[data-fault=schedule]").textContent.includes("minute")`)
	if got := h.definition("shop.close-day").Policy.Schedule; got != "0 30 2 * * *" {
		t.Fatalf("a preview has made it %s", got)
	}
	b.write(field("schedule"), "0 15 4 * * *")
	b.until("nothing is wrong any more", `document.querySelector("[data-fault=schedule]").textContent === "" && document.querySelector("#preview").innerText.includes("04:15:00")`)
	if got := b.text(); got == "" || !ask[bool](b, `document.querySelector("#preview ins").textContent === "0 15 4 * * *"`) {
		t.Errorf("it does not say what differs:\n%s", got)
	}
	b.leads(button("Save"))
	b.sees("Saved.")
	if got := h.definition("shop.close-day").Policy.Schedule; got != "0 15 4 * * *" {
		t.Errorf("saved as %s", got)
	}
}

// A page is light or dark as its reader chose, at once and from then on.
func TestThemeStays(t *testing.T) {
	h := open(t)
	b := h.newTab(true)
	b.open("/")
	ground := func() string { return ask[string](b, `getComputedStyle(document.body).backgroundColor`) }
	before := ground()
	b.click(`[data-theme-form] [value=dark]`)
	b.until("it is dark", `document.documentElement.dataset.theme === "dark"`)
	dark := ground()
	if dark == before {
		t.Errorf("dark and light have the ground %s", dark)
	}
	b.open("/jobs")
	if got := ground(); got != dark {
		t.Errorf("the next page has the ground %s, want %s", got, dark)
	}
	b.click(`[data-theme-form] [value=system]`)
	b.until("it is as the system is", `!document.documentElement.dataset.theme`)
	if got := ground(); got != before {
		t.Errorf("back to the system's: %s, want %s", got, before)
	}
}
