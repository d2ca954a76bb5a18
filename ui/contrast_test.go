package ui

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/ui/static"
)

// Words can be read on what they stand on, in light and in dark: 4.5 to 1 at least (WCAG AA).
func TestContrast(t *testing.T) {
	css, err := static.Files.ReadFile("style.css")
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string][2]lab{}
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\(oklch\(([^)]*)\), oklch\(([^)]*)\)\)`).FindAllStringSubmatch(string(css), -1) {
		tokens[m[1]] = [2]lab{oklch(t, m[2]), oklch(t, m[3])}
	}
	grounds := []string{"ground", "panel", "raised", "sunken", "hover"}
	for theme, name := range []string{"light", "dark"} {
		check := func(what string, words, on lab) {
			if got := contrast(words, on); got < 4.5 {
				t.Errorf("%s: %s has a contrast of %.2f", name, what, got)
			}
		}
		for _, words := range []string{"text", "dim", "accent", "good", "bad", "warn", "busy", "wait", "calm"} {
			if _, ok := tokens[words]; !ok {
				t.Fatalf("there is no token %s", words)
			}
			for _, on := range grounds {
				check(words+" on "+on, tokens[words][theme], tokens[on][theme])
			}
		}
		for _, tone := range []string{"good", "bad", "warn", "busy", "wait", "calm", "dim"} { // badges, tags, banners
			check(tone+" on its badge", tokens[tone][theme], tokens[tone][theme].mix(tokens["panel"][theme], .11))
			check("text on a banner of "+tone, tokens["text"][theme], tokens[tone][theme].mix(tokens["panel"][theme], .11))
		}
		check("a primary button", tokens["on-ink"][theme], tokens["ink"][theme])
	}
	if got := contrast(lab{l: 1}, lab{}); math.Abs(got-21) > .1 {
		t.Errorf("white on black is %.2f", got)
	}
}

// lab is a colour in OKLab.
type lab struct{ l, a, b float64 }

func oklch(t *testing.T, text string) lab {
	t.Helper()
	var v [3]float64
	for i, part := range strings.Fields(text) {
		n, err := strconv.ParseFloat(strings.TrimSuffix(part, "%"), 64)
		if err != nil || i > 2 {
			t.Fatal(fmt.Errorf("colour %q: %w", text, err))
		}
		if strings.HasSuffix(part, "%") {
			n /= 100
		}
		v[i] = n
	}
	return lab{v[0], v[1] * math.Cos(v[2]*math.Pi/180), v[1] * math.Sin(v[2]*math.Pi/180)}
}

func (c lab) mix(with lab, part float64) lab {
	return lab{c.l*part + with.l*(1-part), c.a*part + with.a*(1-part), c.b*part + with.b*(1-part)}
}

// luminance as WCAG has it, through linear sRGB (Ottosson's matrices).
func (c lab) luminance() float64 {
	cube := func(x float64) float64 { return x * x * x }
	l, m, s := cube(c.l+.3963377774*c.a+.2158037573*c.b), cube(c.l-.1055613458*c.a-.0638541728*c.b), cube(c.l-.0894841775*c.a-1.2914855480*c.b)
	within := func(x float64) float64 { return min(max(x, 0), 1) }
	return .2126*within(4.0767416621*l-3.3077115913*m+.2309699292*s) + .7152*within(-1.2684380046*l+2.6097574011*m-.3413193965*s) + .0722*within(-.0041960863*l-.7034186147*m+1.7076147010*s)
}

func contrast(a, b lab) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + .05) / (min(x, y) + .05)
}
