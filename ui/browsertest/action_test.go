package browsertest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A run that a program starts through the API is on an open page by itself.
func TestRowsAppearByThemselves(t *testing.T) {
	h := open(t)
	b := h.newTab(true)
	b.open("/runs?job=shop.charge")
	b.sees("No matches")
	b.streams()
	asked := time.Now()
	h.api("POST", "/api/v1/jobs/shop.charge/trigger", `{"args":{"customer":"c1","cents":100}}`)
	b.until("the row is there", `document.querySelectorAll("#page tbody tr .badge.succeeded").length === 1`)
	t.Logf("the row was there %v after it was asked for", time.Since(asked).Round(time.Millisecond))
}

// api sends a request as a program would.
func (h *fixture) api(method, path, body string) string {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, bytes.NewBufferString(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		h.t.Fatalf("%s %s: %d %s (%v)", method, path, answer.StatusCode, said, err)
	}
	return string(said)
}

// streams waits until the page hears of changes.
func (b *tab) streams() {
	b.t.Helper()
	b.until("the page listens", `document.body.dataset.stream === "on"`)
}

// until waits until an expression is true in the page. One that fails, as while the page is being replaced, is not.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		is, err := tryAsk[bool](b, expression)
		if is {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("in vain for %v: %s at %s: %v\n%s", patience, what, b.path(), err, b.text())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// button is the XPath of a button, a link or a summary by its words.
func button(words string) string {
	return fmt.Sprintf(`//*[self::button or self::summary or self::a][contains(normalize-space(), %q)]`, words)
}

// field is the CSS selector of a field by its name.
func field(name string) string { return fmt.Sprintf("[name=%q]", name) }

func TestCancel(t *testing.T) {
	h := open(t)
	run := h.start("shop.pack", "")
	h.becomes(run.ID, jobs.Processing)
	b := h.newTab(true)
	b.open("/runs/" + run.ID.String())
	b.sees("box ") // its progress, with the next heartbeat
	b.unfold(`//summary[normalize-space()="Cancel"]`)
	b.write("#cancel-reason", "the lorry is full")
	b.leads(button("Cancel this run"))
	b.sees("Cancelled")
	in := h.becomes(run.ID, jobs.Cancelled)
	if last := in.Moves[len(in.Moves)-1]; last.Text != "the lorry is full" {
		t.Errorf("the reason is %q", last.Text)
	}
	b.sees("the lorry is full")
}

// The log of a run that is under way goes on by itself, with its end in sight.
func TestLogGoesOn(t *testing.T) {
	h := open(t)
	run := h.start("shop.pack", "")
	h.becomes(run.ID, jobs.Processing)
	b := h.newTab(true)
	b.open("/runs/" + run.ID.String())
	b.streams()
	b.until("forty lines are there", `document.querySelectorAll("#log tr").length > 40`)
	b.until("the last one is in sight", `(() => { const log = document.querySelector("[data-tail]"); return log.scrollHeight - log.scrollTop - log.clientHeight < 40; })()`)
	b.write(field("find"), "box=3")
	b.leads(button("Find"))
	b.until("only what was looked for", `[...document.querySelectorAll("#log .text")].every((line) => line.textContent.includes("box=3"))`)
	if n := ask[int](b, `document.querySelectorAll("#log tr").length`); n < 5 {
		t.Errorf("%d lines say box=3", n)
	}
}

func TestRunAgain(t *testing.T) {
	h := open(t)
	bad := h.start("shop.charge", `{"customer":"c9","cents":-5}`)
	h.becomes(bad.ID, jobs.Terminated)
	b := h.newTab(true)
	b.open("/runs/" + bad.ID.String())
	b.sees("the bank refused -5 cents")
	b.leads(button("Run with other arguments"))
	b.write(field("a.cents"), "five")
	b.write(field("a.customer"), "c10")
	b.expect("422") // Chromium reports the answer to the form
	b.leads(button("Start run"))
	b.sees("Want a whole number.")
	if typed := ask[string](b, `document.querySelector("[name='a.customer']").value`); typed != "c10" {
		t.Errorf("what was typed is gone: %q", typed)
	}
	b.write(field("a.cents"), "500")
	b.leads(button("Start run"))
	b.sees("R-c10") // its result, without a reload
	b.sees(bad.ID.String())
}

func TestTickedRuns(t *testing.T) {
	h := open(t)
	var packs []*kernel.Run
	for range 3 {
		pack := h.start("shop.pack", "")
		h.becomes(pack.ID, jobs.Processing) // so that no row moves while boxes are ticked
		packs = append(packs, pack)
	}
	b := h.newTab(true)
	b.open("/runs?job=shop.pack")
	first, second := `input[value="`+packs[0].ID.String()+`"]`, `input[value="`+packs[2].ID.String()+`"]`
	b.tick(first)
	b.tick(second)
	b.streams()
	h.start("shop.pack", "") // rows come and go, ticks stay
	b.until("the new run is announced", `!document.querySelector("[data-newer]").hidden`)
	b.until("both ticks", `document.querySelectorAll('input[name="id"]:checked').length === 2`)
	b.leads(button("Cancel selected"))
	b.sees("2 runs were cancelled.")
	for i, state := range []jobs.State{jobs.Cancelled, jobs.Processing, jobs.Cancelled} {
		h.becomes(packs[i].ID, state)
	}
}

func TestDebugModes(t *testing.T) {
	h := open(t)
	b := h.newTab(true)
	h.until("shop.count fires", func() bool { return len(h.runs("shop.count")) > 0 })

	b.open("/settings")
	b.leads(button("Hold recurring jobs"))
	b.sees("Debug mode: recurring jobs do not start automatically.")
	global, err := h.Ops().Settings(t.Context(), ann)
	if err != nil || !global.RecurringDebug.On {
		t.Fatalf("%+v (%v)", global, err)
	}
	h.until("two periods pass", func() bool { return h.Ops().Now().After(global.RecurringDebug.At.Add(2500 * time.Millisecond)) })
	for _, in := range h.runs("shop.count") {
		if in.Due.After(global.RecurringDebug.At) {
			t.Errorf("a run was due %v after debug mode began", in.Due.Sub(global.RecurringDebug.At))
		}
	}
	b.leads(button("Release recurring jobs"))
	h.until("shop.count fires again", func() bool { return h.runs("shop.count")[0].Due.After(global.RecurringDebug.At) })

	b.leads(button("Hold triggered jobs"))
	held, err := h.Client().Enqueue(t.Context(), jobs.Request{Key: "shop.charge"})
	if err != nil {
		t.Fatal(err)
	}
	byHand := h.start("shop.charge", "")
	h.becomes(byHand.ID, jobs.Succeeded)
	h.becomes(held[0].ID, jobs.Scheduled)
	b.sees("1 run is held")
	b.leads(`//main//section[@id="debugmode"]` + button("Switch off, release 1"))
	h.becomes(held[0].ID, jobs.Succeeded)
}

// Live updates do not overwrite what a user is typing.
func TestWritingIsLeftAlone(t *testing.T) {
	h := open(t)
	run := h.start("shop.pack", "")
	h.becomes(run.ID, jobs.Processing)
	b := h.newTab(true)
	b.open("/runs/" + run.ID.String())
	b.streams()
	b.unfold(`//summary[normalize-space()="Cancel"]`)
	b.write("#cancel-reason", "half a sen")
	child, err := h.Ops().Trigger(t.Context(), ann, kernel.Create{Key: "shop.charge", Parent: run.ID}) // shows on this very page
	if err != nil {
		t.Fatal(err)
	}
	b.until("the page has changed", `!!document.querySelector("#children a[href$='`+child.ID.String()+`']")`)
	if typed := ask[string](b, `document.querySelector("#cancel-reason").value + document.querySelector("details.menu").open`); typed != `half a sentrue` {
		t.Errorf("what was typed is %q", typed)
	}
}

// Every page can be read, and every form sent, without JavaScript.
func TestWithoutScript(t *testing.T) {
	h := open(t)
	bad := h.start("shop.charge", `{"customer":"c9","cents":-5}`)
	h.becomes(bad.ID, jobs.Terminated)
	b := h.newTab(false)
	for path, says := range map[string]string{"/": "Overview", "/jobs": "shop.charge", "/jobs/shop.charge": "Takes the money", "/runs?job=shop.charge": "the bank refused -5 cents",
		"/runs/" + bad.ID.String(): "the bank says no", "/workers": "till-1", "/settings": "fire_once"} {
		status := b.open(path)
		for begun := time.Now(); !strings.Contains(b.text(), says) && time.Since(begun) < patience; { // a log comes up to a second later
			status = b.open(path)
		}
		if status != 200 || !strings.Contains(b.text(), says) {
			t.Errorf("%s: %d, %q is not on it", path, status, says)
		}
	}
	b.open("/runs?job=shop.charge")
	b.tick(`input[value="` + bad.ID.String() + `"]`)
	b.leads(button("Run selected again"))
	b.sees("1 run was started again.")
	b.open("/runs/" + bad.ID.String())
	b.leads(button("Run with other arguments"))
	b.write(field("a.cents"), "500")
	b.leads(button("Start run"))
	id, err := jobs.ParseID(strings.TrimPrefix(strings.SplitN(b.path(), "?", 2)[0], "/runs/"))
	if err != nil {
		t.Fatal(err)
	}
	h.becomes(id, jobs.Succeeded)
	b.open(b.path())
	b.sees("R-c9")
}

// Who has no pointer gets everywhere.
func TestKeyboard(t *testing.T) {
	h := open(t)
	bad := h.start("shop.charge", `{"customer":"c9","cents":-5}`)
	h.becomes(bad.ID, jobs.Terminated)
	b := h.newTab(true)
	b.open("/")
	b.streams()
	b.press(kb.Tab)
	b.until("the first stop skips to the content", `document.activeElement.matches(".skip")`)
	b.press("/")
	b.until("the search has the focus", `document.activeElement.id === "search"`)
	b.write("#search", bad.ID.String())
	b.press(kb.Enter)
	b.until("the run is open", `location.pathname === "/runs/`+bad.ID.String()+`"`)
	b.streams()
	if !ask[bool](b, `(() => { const now = Date.now(); Date.now = () => now; return true; })()`) { // r follows soon, however long the machine takes
		t.Fatal("the clock of the page does not stand still")
	}
	b.press("g")
	b.press("r")
	b.until("the runs are open", `location.pathname === "/runs"`)
	b.streams()
	b.press("j")
	b.until("a row has the focus", `document.activeElement.matches("tr[data-href]")`)
	b.press(kb.Enter)
	b.until("a run is open", `location.pathname.startsWith("/runs/")`)
	b.streams()
	b.press("?")
	b.until("the keys are explained", `!!document.querySelector("dialog[open]")`)
	b.press(kb.Escape)
	b.until("they are closed", `!document.querySelector("dialog[open]")`)
}

// press sends keys to what has the focus.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}
