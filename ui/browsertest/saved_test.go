package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// A user names the filter of a list, finds it there again, and removes it. Other users of the browser, and other lists,
// do not have it.
func TestSavedFilters(t *testing.T) {
	h := build(t, embed.Config{Tokens: true}, shop()...)
	h.becomes(h.start("shop.charge", `{"customer":"c9","cents":-5}`).ID, jobs.Terminated)
	b := h.newTab(true)
	tokens := map[string]string{}
	for _, name := range []string{"ann", "bob"} {
		var err error
		if _, tokens[name], err = h.Ops().Grant(t.Context(), ann, ops.NewToken{Name: name, Role: kernel.RoleViewer}); err != nil {
			t.Fatal(err)
		}
	}
	signIn := func(name string) {
		t.Helper()
		b.open("/login")
		b.write("#token", tokens[name])
		b.leads(button("Sign in"))
	}
	names := func() string {
		return ask[string](b, `[...document.querySelectorAll(".saved a")].map((a) => a.textContent).join("|")`)
	}

	signIn("ann")
	b.open("/runs")
	if ask[bool](b, `document.querySelector("[data-saved]").checkVisibility()`) {
		t.Error("without a filter, there is one to save")
	}
	b.open("/runs?state=Terminated&job=shop.*&cursor=x&app=&zone=UTC")
	b.unfold(`//summary[contains(., "Save filter")]`)
	b.write("#filter-name", hostile[:40])
	b.press(kb.Enter)
	b.until("it is listed, with the focus", `document.activeElement.matches(".saved a[aria-current]")`)
	b.inOrder("/runs with a saved filter")
	b.open("/runs")
	b.streams()
	if is := names(); is != hostile[:40] {
		t.Errorf("the filters are %q", is)
	}
	b.leads(`.saved a`)
	if path := b.path(); path != "/runs?job=shop.*&state=Terminated" {
		t.Errorf("it leads to %s", path)
	}
	b.sees("the bank refused -5 cents")
	b.streams()
	run := h.start("shop.charge", `{"customer":"c8","cents":-6}`)
	b.until("a live update leaves it there", `!!document.querySelector("a[href$='`+run.ID.String()+`']") && document.querySelectorAll(".saved a").length === 1`)

	b.open("/jobs?kind=triggered")
	if is := names(); is != "" {
		t.Errorf("the list of jobs has the filters %q", is)
	}
	b.unfold(`//summary[contains(., "Save filter")]`)
	b.write("#filter-name", "by hand")
	b.click(`//form[@class="pop"]/button[.="Save"]`)
	b.until("it is listed", `document.querySelector(".saved a")?.textContent === "by hand"`)
	b.open("/jobs")
	b.leads(`.saved a`)
	b.sees("shop.charge")
	if strings.Contains(b.text(), "shop.close-day") {
		t.Error("the list is not filtered")
	}

	signIn("bob")
	b.open("/runs")
	if is := names(); is != "" {
		t.Errorf("another user has the filters %q", is)
	}
	signIn("ann")
	b.open("/runs")
	b.click(`.saved button`)
	b.until("it is removed", `!document.querySelector(".saved a")`)
	b.open("/runs")
	if is := names(); is != "" {
		t.Errorf("after it was removed, the filters are %q", is)
	}
	ask[bool](b, `(() => { localStorage.setItem("carillon filters /jobs " + document.body.dataset.user, "{"); return true; })()`)
	b.open("/jobs?kind=triggered")
	b.sees("Save filter")
}
