package browsertest

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

// widths are those of a telephone, a tablet and a screen.
var widths = []int64{360, 768, 1440}

// links are the places of the cluster that a page leads to.
const links = `[...document.querySelectorAll("a[href]")].map((a) => new URL(a.getAttribute("href"), location.href).href)`

// kinds are what many paths have in common; the walk looks at some of each kind.
var kinds = []*regexp.Regexp{
	regexp.MustCompile(`^/(runs|jobs)/[^?/]+(/[a-z]+)?`), regexp.MustCompile(`^/[a-z/]*\?[a-z]+`), regexp.MustCompile(`^/[a-z]*$`),
}

// kindOf is a path without what differs: "jobs/edit", "/runs?state".
func kindOf(path string) string {
	for i, r := range kinds {
		if m := r.FindStringSubmatch(path); m != nil {
			if i == 0 {
				return m[1] + m[2]
			}
			return m[0]
		}
	}
	return path
}

const (
	eachKind  = 3 // pages of one kind
	mostPages = 60
)

// Every page that can be reached is in order, in both themes and at every width.
func TestWalk(t *testing.T) {
	h := open(t)
	bad := h.start("shop.charge", `{"customer":"c9","cents":-5}`)
	h.becomes(bad.ID, jobs.Terminated)
	good := h.start("shop.charge", "")
	h.becomes(good.ID, jobs.Succeeded)
	busy := h.start("shop.pack", "")
	h.becomes(busy.ID, jobs.Processing)

	b := h.newTab(true)
	seen := b.walk("", mostPages, "/", "/runs/"+bad.ID.String(), "/runs/"+good.ID.String(), "/runs/"+busy.ID.String())
	for _, want := range []string{"/", "/jobs", "jobs", "jobs/run", "jobs/edit", "jobs/pause", "jobs/delete", "jobs/versions", "jobs/backfill", "/runs", "runs", "/workers", "/stats", "/forecast", "/forecast/day?zone", "/calendars",
		"/cluster", "/settings", "/audit", "/new"} {
		if seen[want] == 0 {
			t.Errorf("no page of the kind %s can be reached", want)
		}
	}
	if status := b.open("/docs"); status != 200 { // the API's, which has a policy of its own
		t.Errorf("/docs is answered by %d", status)
	}
	b.inOrder("/docs")
}

// All of it works below a path of another site.
func TestWalkBelowAPath(t *testing.T) {
	h := build(t, embed.Config{Base: "/tools/jobs"}, shop()...)
	b := h.newTab(true)
	b.expect("404") // what lies beside the path
	b.walk("/tools/jobs", 20, "/")
	b.open("/tools/jobs/runs?job=shop.pack")
	b.streams()
	run := h.start("shop.pack", "")
	b.until("the row is there", `document.querySelectorAll("#page tbody tr").length === 1`)
	b.tick(`input[value="` + run.ID.String() + `"]`)
	b.leads(button("Cancel selected"))
	b.sees("1 run was cancelled.")
	if path := b.path(); !strings.HasPrefix(path, "/tools/jobs/runs?") {
		t.Errorf("the form leads to %s", path)
	}
}

// walk looks at the pages that can be reached from some, and says how many of each kind there were.
func (b *tab) walk(base string, most int, todo ...string) map[string]int {
	t := b.t
	t.Helper()
	seen, of := map[string]bool{}, map[string]int{}
	for len(todo) > 0 && len(seen) < most {
		path := todo[0]
		todo = todo[1:]
		if seen[path] || of[kindOf(path)] >= eachKind {
			continue
		}
		seen[path] = true
		of[kindOf(path)]++
		if status := b.open(base + path); status != 200 {
			t.Errorf("%s is answered by %d", path, status)
			continue
		}
		b.inOrder(path)
		for _, link := range ask[[]string](b, links) {
			next, ours := strings.CutPrefix(link, b.url+base)
			next, _, _ = strings.Cut(next, "#")
			if !ours && !strings.Contains(link, "#") {
				t.Errorf("%s leads away, to %s", path, link)
			}
			if ours && next != "" && !strings.HasPrefix(next, "/openapi") && !strings.HasPrefix(next, "/api/") && !strings.HasPrefix(next, "/docs") && !strings.HasSuffix(next, "/log") {
				todo = append(todo, next)
			}
		}
	}
	t.Logf("%d pages: %s", len(seen), strings.Join(slices.Sorted(maps.Keys(seen)), " "))
	return of
}

// wide lists what sticks out of the window to the right.
const wide = `(() => {
	const most = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth <= most) return [];
	const scrolls = (e) => { for (; e !== document.body; e = e.parentElement) if (getComputedStyle(e).overflowX !== "visible") return true; };
	const out = [...document.body.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > most + 1 && !scrolls(e));
	return ["the page is " + document.documentElement.scrollWidth + " wide", ...out.slice(0, 6).map((e) => e.outerHTML.slice(0, 120))];
})()`

// twice lists ids that are on the page more than once.
const twice = `(() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id); return ids.filter((id, i) => ids.indexOf(id) !== i); })()`

// inOrder looks at a page in every dress.
func (b *tab) inOrder(path string) {
	b.t.Helper()
	if title := ask[string](b, "document.title"); title == "" {
		b.t.Errorf("%s has no title", path)
	}
	if n := ask[int](b, `document.querySelectorAll("h1").length`); n != 1 {
		b.t.Errorf("%s has %d main headings", path, n)
	}
	if ids := ask[[]string](b, twice); len(ids) > 0 {
		b.t.Errorf("%s has ids twice: %q", path, ids)
	}
	for _, role := range b.nameless() {
		b.t.Errorf("%s has a %s without a name", path, role)
	}
	for _, th := range []theme{light, dark} {
		for _, width := range widths {
			b.look(th, width)
			if out := ask[[]string](b, wide); len(out) > 0 {
				b.t.Errorf("%s sticks out at %d: %s", path, width, strings.Join(out, "\n\t"))
			}
			if width < 1440 {
				continue // colours do not depend on the width, and looking at all of them takes its time
			}
			if pale := ask[[]string](b, faint); len(pale) > 0 {
				b.t.Errorf("%s is hard to read (%s, %d): %s", path, th, width, strings.Join(pale, "\n\t"))
			}
		}
	}
}

// faint lists texts whose contrast is below 4.5 to 1, or 3 to 1 if large. A colour behind a text counts if it is
// opaque.
const faint = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
	const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	const known = new Map();
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor;
			if (!known.has(c)) known.set(c, rgba(c));
			if (known.get(c)[3] > 250) return known.get(c);
		}
		return [255, 255, 255, 255];
	};
	const bad = new Map();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; (n = walk.nextNode()); ) {
		const e = n.parentElement;
		if (!n.data.trim() || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || e.closest("svg, [disabled], .hidden, option")) continue;
		const s = getComputedStyle(e), a = light(rgba(s.color)), b = light(behind(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const size = parseFloat(s.fontSize), large = size >= 24 || (size >= 18.6 && s.fontWeight >= 700);
		if (ratio < (large ? 3 : 4.5)) bad.set(e.className + e.tagName, ratio.toFixed(2) + " " + e.outerHTML.slice(0, 120));
	}
	return [...bad.values()].slice(0, 6);
})()`
