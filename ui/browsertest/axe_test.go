package browsertest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

const axeFile = "provider/node_modules/axe-core/axe.min.js"

// violation is a rule that a part of a page breaks.
type violation struct{ Rule, Help, Selector, Why string }

// loadAxe adds axe-core to each page that the tab opens from now on.
func (b *tab) loadAxe() {
	b.t.Helper()
	source, err := os.ReadFile(axeFile)
	if err != nil {
		tests.Missing(b.t, "axe-core is not installed: npm ci --ignore-scripts --prefix ui/browsertest/provider")
	}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: string(source)})
		return err
	}))
}

// audit unfolds all that is folded, and returns what axe-core finds.
const audit = `(async () => {
	for (const folded of document.querySelectorAll("details:not(.menu, .asTable)")) folded.open = true;
	document.querySelector(".asTable")?.setAttribute("open", ""); // one of several alike
	const found = await axe.run(document, {
		runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"],
		resultTypes: ["violations"], preload: false, elementRef: false,
	});
	return found.violations.flatMap((v) => v.nodes.map((n) => ({ Rule: v.id, Help: v.help, Selector: n.target.join(" "), Why: n.failureSummary })));
})()`

// accessible fails for each rule of WCAG 2.2 A and AA, and of axe-core's best practices, that the page breaks.
func (b *tab) accessible(what string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]violation](audit, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: axe-core: %v", what, err)
	}
	for _, v := range found {
		b.t.Errorf("%s: %s: %s\n\t%s\n\t%s", what, v.Rule, v.Help, v.Selector, strings.ReplaceAll(v.Why, "\n", "\n\t"))
	}
}

// No page breaks a rule of axe-core or scrolls sideways, wide and light or narrow and dark; nor do an open menu, the
// dialog of keys and the login page.
func TestAccessible(t *testing.T) {
	f := furnished(t)
	for th, width := range map[theme]int64{light: 1400, dark: 390} {
		t.Run(string(th), func(t *testing.T) {
			t.Parallel()
			b := f.tab(t)
			b.loadAxe()
			for _, v := range f.views {
				b.show(v)
				for _, w := range []int64{768, width} {
					b.look(th, w)
					if out := ask[[]string](b, wide); len(out) > 0 {
						t.Errorf("%s sticks out at %d: %s", v.name, w, strings.Join(out, "\n\t"))
					}
				}
				b.accessible(v.name)
			}
			b.open("/jobs/shop.charge")
			b.unfold(`//summary[contains(normalize-space(), "Pause")]`)
			b.accessible("an open menu")
			b.press(kb.Escape + "?")
			b.until("the keys are explained", `!!document.querySelector("dialog[open]")`)
			b.accessible("the dialog of keys")
			b.press(kb.Escape)
			b.open("/runs?state=Terminated")
			b.unfold(`//summary[contains(., "Save filter")]`)
			b.accessible("the menu of a filter")
			b.write("#filter-name", "failed")
			b.press(kb.Enter)
			b.accessible("a saved filter")
			b.leads(`//button[contains(normalize-space(), "Sign out")]`)
			b.accessible("signed out")
		})
	}
}
