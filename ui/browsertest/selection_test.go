package browsertest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Runs that are selected stay selected, and in sight, however many newer ones come. The list waits, says how many are
// newer, and shows them on request.
func TestSelectionSurvivesUpdates(t *testing.T) {
	h := open(t)
	b := h.newTab(true)
	b.open("/runs?job=shop.count")
	const rows = `document.querySelectorAll("#page tr[data-key]")`
	b.until("there are runs", rows+".length >= 3")
	ids := ask[string](b, `[...`+rows+`].slice(0, 2).map((row) => row.dataset.key).join()`)
	for id := range strings.SplitSeq(ids, ",") {
		b.tick(fmt.Sprintf(`input[value="%s"]`, id))
	}
	const chosen = `[...document.querySelectorAll("input[name=id]:checked")].map((box) => box.value).join()`
	b.until("the selection is counted", `document.querySelector("[data-selected]").textContent === "2 selected"`)
	first := ask[string](b, rows+`[0].dataset.key`)
	b.until("newer runs are announced", `/^[2-9] newer runs: show$/.test(document.querySelector("[data-newer]").textContent) && !document.querySelector("[data-newer]").hidden`)
	if now := ask[string](b, rows+`[0].dataset.key`); now != first {
		t.Errorf("the list has moved on to %s", now)
	}
	b.click("[data-newer]")
	b.until("they are shown", rows+`[0].dataset.key !== `+fmt.Sprintf("%q", first))
	if now := ask[string](b, chosen); now != ids {
		t.Errorf("selected are %s, want %s", now, ids)
	}
	for id := range strings.SplitSeq(ids, ",") {
		b.clickUntil(fmt.Sprintf(`input[value="%s"]`, id), fmt.Sprintf(`!document.querySelector('input[value="%s"]').checked`, id))
	}
	b.until("without a selection the list goes on", `document.querySelector("[data-newer]").hidden && document.querySelector("[data-selected]").textContent === ""`)
}

// What a label says of the zone is so after live updates, too.
func TestZoneSurvivesUpdates(t *testing.T) {
	h := open(t)
	b := h.newTab(true)
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
		return err
	}))
	b.open("/runs")
	const labels = `[...document.querySelectorAll("[data-zone]")].every((e) => e.textContent === "Asia/Tokyo")`
	b.until("the zone is the reader's", labels)
	ask[any](b, `window.placed = 0; document.addEventListener("placed", () => window.placed++); true`)
	b.until("the page is updated", `window.placed >= 2`)
	if !ask[bool](b, labels) {
		t.Error("after an update a label has another zone")
	}
	b.open("/forecast")
	b.leads(`//a[contains(., "A day by hour")]`)
	b.sees("in Asia/Tokyo")
	if zone := ask[string](b, `document.querySelector("#d-zone").value`); zone != "Asia/Tokyo" {
		t.Errorf("the field of the day has the zone %q", zone)
	}
	b.open("/forecast/day")
	if zone := ask[string](b, `document.querySelector("#d-zone").value`); zone != "UTC" {
		t.Errorf("the field of a day in UTC has the zone %q", zone)
	}
}
