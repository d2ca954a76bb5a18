package ops

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Source is a setting of all jobs with its value, and where that comes from.
type Source struct {
	Name      string // one of kernel.GlobalFields
	App       string // of a default of an app's jobs
	Value     any
	Triggered any // of a default: the value for triggered jobs, if it differs
	File      any // value of the configuration file that an edit overrules; nil = none
	Owner
}

// Sources lists the settings of all jobs, and then the defaults of apps that are set.
func Sources(g *kernel.Global) []Source {
	values := map[string][2]any{ // the effective value, and that of the file
		kernel.FieldRecurringDebug: {g.RecurringDebug.On, given(g.File.RecurringDebug)},
		kernel.FieldTriggeredDebug: {g.TriggeredDebug.On, given(g.File.TriggeredDebug)},
		kernel.FieldNewJobs:        {cmp.Or(g.NewJobs, kernel.NewEnabled), given(g.File.NewJobs)},
		kernel.FieldMisfireAfter:   {g.Late().String(), nil},
		kernel.FieldMaxJobs:        {g.Quota(), nil},
		kernel.FieldAppLimits:      {kernel.LimitsText(g.AppLimits), nil},
		kernel.FieldRetryBudget:    {g.Budget().String(), nil},
	}
	recurring := (&kernel.Definition{Kind: kernel.Recurring}).Resolve(g)
	triggered := (&kernel.Definition{Kind: kernel.Triggered}).Resolve(g)
	var list []Source
	for _, name := range kernel.GlobalFields() {
		s := Source{Name: name}
		if field, is := strings.CutPrefix(name, kernel.InDefaults); is {
			if s.Value = recurring.Field(field); field == "zone" {
				s.Value = cmp.Or(recurring.Zone, "UTC")
			}
			if slices.Contains(g.File.Defaults.Given(), field) {
				s.File = cmp.Or(g.File.Defaults.Value(field), any("none"))
			}
			if v := triggered.Field(field); field != "zone" && !reflect.DeepEqual(v, s.Value) {
				s.Triggered = v
			}
		} else {
			s.Value, s.File = values[name][0], values[name][1]
		}
		s.Owner = ownerOf(g, "", name, s.File != nil)
		if s.Kind == OwnerFile || reflect.DeepEqual(s.File, s.Value) {
			s.File = nil
		}
		list = append(list, s)
	}
	for _, a := range g.Apps {
		for _, field := range a.Set.Given() {
			name := kernel.InDefaults + field
			list = append(list, Source{Name: name, App: a.App, Value: a.Set.Value(field), Owner: ownerOf(g, a.App, name, false)})
		}
	}
	return list
}

func given[T any](v *T) any {
	if v == nil {
		return nil
	}
	return *v
}

// ownerOf returns who set a setting of all jobs, or of an app's.
func ownerOf(g *kernel.Global, app, name string, inFile bool) Owner {
	kind := OwnerTenant
	if app != "" {
		kind = OwnerApp
	}
	switch s := g.Setter(app, name); {
	case s != nil:
		return Owner{Kind: kind, By: s.By, At: s.At}
	case inFile:
		return Owner{Kind: OwnerFile, By: g.File.By, At: g.File.At}
	}
	return Owner{Kind: OwnerBuiltIn}
}
