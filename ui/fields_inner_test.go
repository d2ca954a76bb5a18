package ui

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Each setting but http has a field in the form: the requests of an HTTP job have a page of their own.
func TestEverySettingHasAField(t *testing.T) {
	const file = "ui/fields.go"
	have := map[string]setting{}
	for _, s := range settings {
		have[s.Name] = s
	}
	for _, name := range kernel.Fields() {
		s, ok := have[name]
		if delete(have, name); !ok {
			if name != "http" {
				t.Errorf("setting %s has no field: add it to settings in %s", name, file)
			}
			continue
		}
		var values []string
		for _, c := range s.Choices {
			values = append(values, c[0])
		}
		if want := kernel.Choices(name); !slices.Equal(values, want) {
			t.Errorf("setting %s has choices %q in %s, want %q", name, values, file, want)
		}
	}
	for name := range have {
		t.Errorf("field %s in %s is no setting", name, file)
	}
}

// The text of a field reads back as the same value.
func TestFieldsReadWhatTheyShow(t *testing.T) {
	for _, kind := range []kernel.Kind{kernel.Recurring, kernel.Triggered} {
		d := kernel.Definition{Key: "report", Kind: kind, Code: kernel.Settings{
			Zone: new("Europe/Berlin"), Tags: new([]string{"line", "night"}), Limits: new([]jobs.Limit{{Name: "db", Max: 3}}),
			Rate: new(jobs.Rate{Max: 5, Per: 30e9}), RetryRules: new([]jobs.RetryRule{{Codes: []string{"502"}, Attempts: 3, Delay: 10e9}}),
			Disabled: new(true), First: new(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)), Timeout: new(90 * time.Second), Priority: new(-7), Parent: new("parent"), RetryFactor: new(1.5)}}
		p := d.Resolve(&kernel.Global{})
		for _, f := range settings {
			if f.Name == "args" || f.Name == "exec" { // an empty text is {}
				continue
			}
			var s kernel.Settings
			if err := f.read(&s, f.text(&p), p.Zone); err != nil {
				t.Errorf("%s: %v", f.Name, err)
				continue
			}
			if given := s.Given(); !slices.Equal(given, []string{f.Name}) {
				t.Errorf("%s: the field sets %q", f.Name, given)
				continue
			}
			back := (&kernel.Definition{Key: "report", Kind: kind, Code: d.Code, Edits: s}).Resolve(&kernel.Global{})
			if got, want := back.Field(f.Name), p.Field(f.Name); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: the text %q became %v, want %v", f.Name, f.text(&p), got, want)
			}
		}
	}
}

// Each state has an icon and a colour, and its runs are in the charts of the overview.
func TestEveryStateIsShown(t *testing.T) {
	css, err := os.ReadFile("static/style.css")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, s := range kernel.States() {
		b := badgeOf(s)
		if icons[b.Icon] == "" {
			t.Errorf("state %s has no icon: add %q to icons in ui/icon.go", s, b.Icon)
		}
		if !regexp.MustCompile(`(?m)^  [.a-z, ]*\.` + b.Class + `\b.*--tone`).Match(css) {
			t.Errorf("state %s has no colour: add .%s to ui/static/style.css", s, b.Class)
		}
		var sum int64
		if s.Final() {
			hour := kernel.Tally{Span: kernel.Hour, At: kernel.Hour.Start(now)}
			hour.Runs[s] = 1
			for _, series := range hours([]kernel.Tally{hour}, now).Series {
				sum += series.Sum()
			}
		} else {
			var p overview
			p.Overview.Live = map[jobs.State]int{s: 1}
			p.Overview.Now = now
			p.draw("")
			for _, part := range p.Now.Parts {
				sum += int64(part.N)
			}
		}
		if sum != 1 {
			t.Errorf("a run in state %s is counted %d times: add the state to hours or draw in ui/overview.go", s, sum)
		}
	}
}
