package browsertest

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/carillon-scheduler/carillon/jobs"
)

// stops finds what Tab has to reach: one radio of a group, and one bar of a row of bars, stand for the others.
const stops = `(() => {
	window.stops = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter((e) => {
		if (e.tabIndex < 0 || e.type === "hidden" || e.disabled || !e.checkVisibility({ visibilityProperty: true })) return false;
		if (e.type !== "radio") return true;
		const group = [...e.form.elements[e.name]];
		return e === (group.find((r) => r.checked) ?? group[0]);
	});
	window.before = window.stops[0];
	window.before.focus();
	window.reached = new Set([window.before]);
	return window.stops.length;
})()`

// reached looks at what has the focus: whether it is in sight, has an outline, and comes after what had it before.
const reached = `(() => {
	const e = document.activeElement, name = e.outerHTML.slice(0, 120), wrong = [];
	if (e === document.body || e === window.before) return { Done: false, Wrong: wrong };
	const done = e === window.stops[0];
	if (!done && !(window.before.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING)) wrong.push("comes after what follows it: " + name);
	window.before = e;
	window.reached.add(e);
	const style = getComputedStyle(e), box = e.getBoundingClientRect();
	if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1) wrong.push("has no outline: " + name);
	const left = Math.max(0, box.left), right = Math.min(innerWidth, box.right), top = Math.max(0, box.top), bottom = Math.min(innerHeight, box.bottom);
	const over = right > left && bottom > top && document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
	if (!over) wrong.push("is out of sight: " + name);
	else if (!e.contains(over) && !over.contains(e)) wrong.push("is covered by " + over.outerHTML.slice(0, 80) + ": " + name);
	return { Done: done, Wrong: wrong };
})()`

// Tab leads through all links, buttons and fields of a page in their order, each with an outline and in sight, and back
// to the first one.
func TestTabStops(t *testing.T) {
	f := furnished(t)
	b := f.tab(t)
	paths := map[string]string{}
	for _, v := range f.views {
		paths[v.name] = v.path
	}
	for _, name := range []string{"overview", "jobs-filtered", "job", "job-graph", "job-edit", "job-pause", "runs-filtered", "run-busy", "run-graph", "alarms", "alarm-rule", "forecast", "day", "calendar",
		"workers", "settings", "access", "tenant"} {
		b.look(light, map[bool]int64{true: 390, false: 1400}[name == "job"]) // one of them narrow
		b.open(paths[name])
		b.streams()
		ask[bool](b, `document.dispatchEvent(new Event("hold"))`) // the stops stay the same
		n := ask[int](b, stops)
		done := false
		for range n + 60 { // a date has several stops of its own
			b.press(kb.Tab)
			at := ask[struct {
				Done  bool
				Wrong []string
			}](b, reached)
			for _, wrong := range at.Wrong {
				t.Errorf("%s: %s", name, wrong)
			}
			if done = at.Done; done {
				break
			}
		}
		if !done {
			t.Errorf("%s: Tab does not come back to the first of %d stops", name, n)
		}
		for _, missed := range ask[[]string](b, `window.stops.filter((e) => !window.reached.has(e)).map((e) => e.outerHTML.slice(0, 120))`) {
			t.Errorf("%s: Tab does not reach %s", name, missed)
		}
	}
}

// focus gives the focus to what a selector finds, as Tab would.
func (b *tab) focus(selector string) {
	b.t.Helper()
	b.do(chromedp.Focus(selector))
	b.until(selector+" has the focus", fmt.Sprintf(`document.activeElement.matches(%q)`, selector))
}

// The skip link, menus, dialogs, the theme, the pause of updates and the bars of runs need no pointer.
func TestKeys(t *testing.T) {
	h := open(t)
	for range 3 {
		h.becomes(h.start("shop.charge", `{"customer":"c1","cents":100}`).ID, jobs.Succeeded)
	}
	b := h.newTab(true)
	b.open("/jobs/shop.charge")
	b.streams()
	b.press(kb.Tab)
	b.press(kb.Enter)
	b.until("the content has the focus", `document.activeElement.id === "main"`)
	b.press(kb.Tab)
	b.until("Tab goes on in the content", `document.activeElement.matches("#page *")`)

	b.focus("summary.button")
	b.press(kb.Enter)
	b.until("the menu is open, with the focus in it", `document.querySelector(".menu[open]")?.contains(document.activeElement) && document.activeElement.matches("input")`)
	b.press(kb.Escape)
	b.until("Escape closes it", `!document.querySelector(".menu[open]") && document.activeElement.matches("summary")`)
	b.press(kb.Enter)
	b.until("it is open again", `!!document.querySelector(".menu[open]")`)
	for range 12 { // through it, and out of it
		b.press(kb.Tab)
	}
	b.until("a menu closes behind the focus", `!document.querySelector(".menu[open]")`)

	b.focus("[data-help]")
	b.press(kb.Enter)
	b.until("the keys are explained", `document.querySelector("dialog[open]")?.contains(document.activeElement)`)
	b.press(kb.Tab)
	b.press(kb.Tab)
	b.until("the focus stays in the dialog", `document.activeElement === document.body || !!document.activeElement.closest("dialog")`)
	b.press(kb.Escape)
	b.until("Escape closes the dialog, and the button has the focus", `!document.querySelector("dialog[open]") && document.activeElement.matches("[data-help]")`)

	b.focus("[data-hold]")
	b.press(" ")
	b.until("updates are paused", `document.body.dataset.stream === "held" && document.activeElement.getAttribute("aria-pressed") === "true"`)
	b.press(" ")
	b.until("updates go on", `document.body.dataset.stream === "on"`)
	b.focus("[data-theme-form] [value=dark]")
	b.press(" ")
	b.until("it is dark", `document.documentElement.dataset.theme === "dark" && document.activeElement.value === "dark"`)

	if n := ask[int](b, `document.querySelectorAll(".spark a:not([tabindex='-1'])").length`); n != 1 {
		t.Errorf("the bars of runs are %d stops", n)
	}
	b.focus(".spark a[tabindex='0']")
	b.press(kb.ArrowLeft)
	b.until("the arrow leads to the run before", `document.activeElement.nextElementSibling?.matches(".spark a[tabindex='-1']")`)
	b.press(kb.Enter)
	b.until("Enter opens it", `location.pathname.startsWith("/runs/")`)
}

// A live update leaves the focus where it is, or, if that has gone, in the part of the page around it.
func TestFocusStays(t *testing.T) {
	h := open(t)
	first := h.start("shop.pack", "")
	h.becomes(first.ID, jobs.Processing)
	b := h.newTab(true)
	b.open("/runs?job=shop.pack&state=Processing")
	b.streams()
	link := `td.main a[href$='` + first.ID.String() + `']`
	b.focus(link)
	second := h.start("shop.pack", "")
	b.until("another row is there", `document.querySelectorAll("#page tbody tr").length === 2`)
	if !ask[bool](b, fmt.Sprintf(`document.activeElement.matches(%q)`, link)) {
		t.Errorf("the focus is at %s", ask[string](b, `document.activeElement.outerHTML.slice(0, 200)`))
	}
	if _, err := h.Ops().Cancel(t.Context(), ann, first.ID); err != nil {
		t.Fatal(err)
	}
	b.until("its row has gone", `document.querySelectorAll("#page tbody tr").length === 1`)
	if !ask[bool](b, `document.activeElement.matches("#page tbody")`) {
		t.Errorf("the focus is at %s", ask[string](b, `document.activeElement.outerHTML.slice(0, 200)`))
	}
	b.press(kb.Tab)
	b.until("Tab goes on nearby", `!!document.activeElement.closest("tr")?.querySelector("a[href$='`+second.ID.String()+`']")`)
}
