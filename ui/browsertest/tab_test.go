package browsertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// browser is the one that all tests share; each test has tabs of its own in it.
var browser context.Context

func TestMain(m *testing.M) { os.Exit(withBrowser(m)) }

func withBrowser(m *testing.M) int {
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			fmt.Println("chromium is not on the PATH, and CI=true: install it (apt-get install chromium)")
			return 1
		}
		fmt.Println("skipped: chromium is not on the PATH")
		return 0
	}
	dir, err := os.MkdirTemp("", "carillon-browser-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	var said bytes.Buffer
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("headless", "new"), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en-GB"), chromedp.CombinedOutput(&said),
		chromedp.WSURLReadTimeout(time.Minute))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop() // waits until the browser has ended
	var closeBrowser context.CancelFunc
	browser, closeBrowser = chromedp.NewContext(allocator)
	defer closeBrowser()
	started := make(chan error, 1)
	go func() { started <- chromedp.Do(browser) }()
	select {
	case err = <-started:
	case <-time.After(time.Minute):
		err = errors.New("no answer within a minute")
	}
	if err != nil {
		fmt.Printf("chromium does not start: %v\n%s", err, said.String())
		return 1
	}
	return sqltest.Main(m)
}

// tab is one page of the browser with a watch on it. What a page must never do fails the test when it ends.
type tab struct {
	t      *testing.T
	ctx    context.Context
	url    string // of the cluster
	clicks int    // and texts typed, by hand

	mu       sync.Mutex
	troubles []string
	forgiven []string // troubles that were expected
	expected []string // parts of complaints that the test provokes
}

// newTab opens a tab. Script says whether pages may run JavaScript.
func (h *fixture) newTab(script bool) *tab {
	h.t.Helper()
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{t: h.t, ctx: ctx, url: h.url}
	h.t.Cleanup(func() {
		closeTab()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, trouble := range b.troubles {
			h.t.Errorf("browser: %s", trouble)
		}
	})
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err1 := cdp.Call(ctx, t, audits.Enable, cdp.Empty{})
		_, err2 := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !script})
		_, err3 := cdp.Call(ctx, t, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: "en-GB"})
		return errors.Join(err1, err2, err3)
	}))
	if err := chromedp.Listen(ctx, b.watch); err != nil {
		h.t.Fatal(err)
	}
	b.look(light, 1440)
	return b
}

// expect says that the test provokes, or has provoked, complaints that hold this text.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, part)
	b.sort()
}

func (b *tab) trouble(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, fmt.Sprintf(format, args...))
	b.sort()
}

// sort puts aside what was expected.
func (b *tab) sort() {
	b.troubles = slices.DeleteFunc(b.troubles, func(text string) bool {
		if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(text, part) }) {
			return false
		}
		b.forgiven = append(b.forgiven, text)
		return true
	})
}

// watch hears all that happens in the tab.
func (b *tab) watch(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			b.trouble("console.%s: %s", e.Type, consoleText(e.Args))
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		b.trouble("a script threw: %s", text)
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Source == "security" {
			b.trouble("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *audits.EventIssueAdded:
		if d := e.Issue.Details; d != nil && d.ContentSecurityPolicyIssueDetails != nil {
			p := d.ContentSecurityPolicyIssueDetails
			b.trouble("the policy was broken: %s %s", p.ViolatedDirective, p.BlockedURL)
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || (u.Scheme != "data" && u.Scheme != "blob" && u.Scheme+"://"+u.Host != b.url) {
			b.trouble("request to another site: %s", e.Request.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.trouble("a dialog opened: %s", e.Message)
		go b.dismiss()
	}
}

// dismiss closes a dialog, which would block the tab.
func (b *tab) dismiss() {
	_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
}

func consoleText(args []*runtime.RemoteObject) string {
	var out strings.Builder
	for _, a := range args {
		fmt.Fprintf(&out, "%s %s ", a.Description, a.Value)
	}
	return out.String()
}

// do does things one after another, in the time that anything may take.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := b.try(steps...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) try(steps ...chromedp.Action[chromedp.Void]) error {
	if err := chromedp.Do(b.ctx); err != nil { // opens the tab, whose life must not be that of the step
		return err
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Do(ctx, steps...)
}

// ask evaluates an expression in the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := tryAsk[T](b, expression)
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func tryAsk[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// open opens a page of the cluster and says with which status it came.
func (b *tab) open(path string) int {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	answer, err := chromedp.Run(ctx, chromedp.NavigateResponse(b.url+path))
	if err != nil && strings.Contains(err.Error(), "net::ERR_ABORTED") { // by another navigation that was under way
		b.t.Logf("opening %s at %s was broken off; again", path, b.path())
		answer, err = chromedp.Run(ctx, chromedp.NavigateResponse(b.url+path))
	}
	if err != nil {
		b.t.Fatalf("open %s: %v", path, err)
	}
	if answer == nil {
		return 0
	}
	return int(answer.Status)
}

// path is where the tab is.
func (b *tab) path() string {
	b.t.Helper()
	return strings.TrimPrefix(ask[string](b, "location.href"), b.url)
}

// text is all that can be read on the page.
func (b *tab) text() string {
	b.t.Helper()
	return ask[string](b, "document.body.innerText")
}

// sees waits until the page shows a text.
func (b *tab) sees(text string) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		shown := b.text()
		if strings.Contains(shown, text) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s does not show %q within %v:\n%s", b.path(), text, patience, shown)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// click presses what a CSS selector or an XPath leads to, as soon as it can be seen.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.clicks++
	if err := b.try(chromedp.Click(selector, chromedp.NodeVisible)); err != nil {
		b.t.Fatalf("click on %s at %s: %v\n%s", selector, b.path(), err, b.text())
	}
}

// tick clicks a box until it is ticked.
func (b *tab) tick(selector string) {
	b.t.Helper()
	b.clickUntil(selector, `document.querySelector(`+strconv.Quote(selector)+`).checked`)
}

// unfold clicks a summary until what it stands for is open.
func (b *tab) unfold(summary string) {
	b.t.Helper()
	b.clickUntil(summary, `document.evaluate(`+strconv.Quote(summary+"/..")+`, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue.open`)
}

// clickUntil clicks again what does not show that it was clicked: a click may miss what is just moving.
func (b *tab) clickUntil(selector, expression string) {
	b.t.Helper()
	for range 5 {
		b.click(selector)
		if ask[bool](b, expression) {
			return
		}
	}
	b.t.Fatalf("clicks on %s at %s do nothing\n%s", selector, b.path(), b.text())
}

// leads clicks and waits for another page. On a page that has just moved under the pointer a click may miss; then it
// clicks again.
func (b *tab) leads(selector string) {
	b.t.Helper()
	b.clicks++
	for try := range 3 {
		ctx, cancel := context.WithTimeout(b.ctx, patience/2)
		_, err := chromedp.RunResponse(ctx, chromedp.Click(selector, chromedp.NodeVisible))
		cancel()
		if err == nil {
			return
		}
		if try == 2 || !errors.Is(err, context.DeadlineExceeded) {
			b.t.Fatalf("click on %s at %s: %v\n%s", selector, b.path(), err, b.text())
		}
		b.t.Logf("the click on %s at %s led nowhere; again", selector, b.path())
	}
}

// write puts a text into a field in place of what is there.
func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.clicks++
	replace := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err1 := cdp.Call(ctx, t, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "rawKeyDown", Commands: []string{"selectAll"}})
		_, err2 := cdp.Call(ctx, t, input.InsertText, input.InsertTextParams{Text: text})
		return errors.Join(err1, err2)
	})
	if err := b.try(chromedp.WaitVisible(selector), chromedp.Focus(selector), replace); err != nil {
		b.t.Fatalf("write into %s at %s: %v\n%s", selector, b.path(), err, b.text())
	}
}

type theme string

const (
	light theme = "light"
	dark  theme = "dark"
)

// look sets the theme and the width of the window.
func (b *tab) look(th theme, width int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 900), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: string(th)}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	}))
}

// nameless lists what can be operated and has no name for those who cannot see it.
func (b *tab) nameless() []string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	var list []string
	for _, n := range tree.Nodes {
		role := axText(n.Role)
		switch role {
		case "button", "link", "textbox", "combobox", "checkbox", "radio", "searchbox", "spinbutton", "switch", "tab", "image", "DisclosureTriangle", "progressbar":
			if !n.Ignored && strings.TrimSpace(axText(n.Name)) == "" {
				list = append(list, role)
			}
		}
	}
	return list
}

func axText(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}
