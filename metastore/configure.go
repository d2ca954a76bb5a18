package metastore

import (
	"reflect"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// configure changes a tenant's settings. What users set overrides the configuration file until they reset it.
func (c *change) configure(k kernel.Configure) error {
	row := c.global()
	g := *row
	g.Tenant = c.env.Tenant
	g.Apps, g.Setters = slices.Clone(row.Apps), slices.Clone(row.Setters)
	if k.File != nil && !k.File.Same(&row.File) {
		g.File = *k.File
		g.File.By, g.File.At = c.env.Actor, c.at
	}
	g.Setters = slices.DeleteFunc(g.Setters, func(s kernel.Setter) bool { return s.App == k.App && slices.Contains(k.Reset, s.Name) })
	if err := c.jobDefaults(&g, k); err != nil {
		return err
	}
	for _, m := range []struct {
		name      string
		set, file *bool
		mode      *kernel.Debug
	}{{kernel.FieldRecurringDebug, k.RecurringDebug, g.File.RecurringDebug, &g.RecurringDebug},
		{kernel.FieldTriggeredDebug, k.TriggeredDebug, g.File.TriggeredDebug, &g.TriggeredDebug}} {
		on := m.mode.On
		if follow(c, &g, m.name, &on, m.set, valueOr(m.file)); on != m.mode.On {
			if !on && m.mode == &g.RecurringDebug {
				g.Silenced(kernel.MissedDebug, m.mode.At, c.at)
			}
			*m.mode = kernel.Debug{On: on, By: c.env.Actor, At: c.at, Discard: k.Discard && !on}
		}
	}
	follow(c, &g, kernel.FieldNewJobs, &g.NewJobs, k.NewJobs, valueOr(g.File.NewJobs))
	follow(c, &g, kernel.FieldMisfireAfter, &g.MisfireAfter, k.MisfireAfter, 0)
	follow(c, &g, kernel.FieldMaxJobs, &g.MaxJobs, k.MaxJobs, 0)
	var budget **jobs.Rate
	if k.RetryBudget != nil {
		budget = &k.RetryBudget
	}
	follow(c, &g, kernel.FieldRetryBudget, &g.RetryBudget, budget, nil)
	if k.AppLimits != nil {
		k.AppLimits = new(append([]jobs.Limit(nil), *k.AppLimits...)) // of an empty list, nothing
	}
	follow(c, &g, kernel.FieldAppLimits, &g.AppLimits, k.AppLimits, nil)
	if len(g.Apps) == 0 {
		g.Apps = nil
	}
	if len(g.Setters) == 0 {
		g.Setters = nil
	}
	if row.Tenant == g.Tenant && reflect.DeepEqual(g, *row) {
		c.effect.Existing, c.effect.Global = true, row
		return nil
	}
	g.Revision++
	c.number()
	c.tx.Put(&g)
	c.effect.Global = &g
	if !reflect.DeepEqual(row.AppLimits, g.AppLimits) {
		c.appLimits(row, &g)
	}
	was, is := configured(row, &g, k)
	c.audit("settings", was, is)
	return nil
}

// follow sets a field to the value of the command. A field that no user has set follows the file.
func follow[T any](c *change, g *kernel.Global, name string, field, set *T, file T) {
	switch {
	case set != nil:
		c.setBy(g, "", name, !reflect.DeepEqual(*field, *set))
		*field = *set
	case g.Setter("", name) == nil:
		*field = file
	}
}

// setBy stores who set a setting, unless it had been set to the same value.
func (c *change) setBy(g *kernel.Global, app, name string, changed bool) {
	s := g.Setter(app, name)
	if s == nil {
		g.Setters = append(g.Setters, kernel.Setter{App: app, Name: name})
		s, changed = &g.Setters[len(g.Setters)-1], true
	}
	if changed {
		s.By, s.At = c.env.Actor, c.at
	}
}

// jobDefaults changes the defaults of jobs, of all or of an app.
func (c *change) jobDefaults(g *kernel.Global, k kernel.Configure) error {
	to := &g.Defaults
	if k.App != "" {
		i, ok := slices.BinarySearchFunc(g.Apps, k.App, func(a kernel.AppDefaults, app string) int { return strings.Compare(a.App, app) })
		if !ok && len(g.Apps) >= kernel.MaxAppDefaults {
			return kernel.Exhausted(kernel.BoundAppDefaults, "too many apps with defaults: %d of %d (app %s): reset those of another app", len(g.Apps), kernel.MaxAppDefaults, k.App)
		}
		if !ok {
			g.Apps = slices.Insert(g.Apps, i, kernel.AppDefaults{App: k.App})
		}
		to = &g.Apps[i].Set
	}
	var reset []string
	for _, name := range k.Reset {
		reset = append(reset, strings.TrimPrefix(name, kernel.InDefaults))
	}
	before := to.Without(reset)
	*to = before
	if k.Defaults != nil {
		*to = k.Defaults.Over(before)
		differ := before.Changed(to)
		for _, name := range k.Defaults.Given() {
			c.setBy(g, k.App, kernel.InDefaults+name, slices.Contains(differ, name))
		}
	}
	g.Apps = slices.DeleteFunc(g.Apps, func(a kernel.AppDefaults) bool { return len(a.Set.Given()) == 0 })
	return nil
}

// configured is the settings in an audit: only what differs.
func configured(before, after *kernel.Global, k kernel.Configure) (was, is fields) {
	was, is = fields{}, fields{}
	say := func(name string, x, y any) {
		if !reflect.DeepEqual(x, y) {
			was[name], is[name] = x, y
		}
	}
	say("recurringDebug", before.RecurringDebug.On, after.RecurringDebug.On)
	say("triggeredDebug", before.TriggeredDebug.On, after.TriggeredDebug.On)
	say("misfireAfter", before.MisfireAfter.String(), after.MisfireAfter.String())
	say("maxJobs", before.MaxJobs, after.MaxJobs)
	say("newJobs", before.NewJobs, after.NewJobs)
	say("appLimits", before.AppLimits, after.AppLimits)
	say("retryBudget", before.Budget().String(), after.Budget().String())
	ofApp, ofAppNow := before.OfApp(k.App), after.OfApp(k.App)
	for _, l := range []struct {
		name    string
		was, is *kernel.Settings
	}{{"fileDefaults", &before.File.Defaults, &after.File.Defaults}, {"defaults", &before.Defaults, &after.Defaults},
		{"defaults of app " + k.App, &ofApp, &ofAppNow}} {
		if x, y := defaults(l.was, l.is); len(y) > 0 {
			was[l.name], is[l.name] = x, y
		}
	}
	if len(k.Reset) > 0 {
		is["reset"] = k.Reset
	}
	return was, is
}

// valueOr is the value, or the zero one if there is none.
func valueOr[T any](v *T) (none T) {
	if v == nil {
		return none
	}
	return *v
}
