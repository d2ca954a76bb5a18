package kernel

import (
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A bundle is the jobs and calendars of one set of files. A bundle prunes what its files no longer name, so a job's row
// records what it may undo: it deletes a job that it created and that no worker has registered, and it clears the
// edited fields that it set of a job that a worker has registered.

// checkBundle validates the name of a bundle; "" = none.
func checkBundle(name string) error {
	if name == "" {
		return nil
	}
	return CheckName("bundle", name)
}

// Apply returns the definition with the edit's fields and bundle. The effective settings are not resolved again. A job
// of another bundle is refused as Conflict. A job that a user created joins a bundle only by TakeOver: the bundle would
// delete it otherwise. A job without code keeps what it does and when: see erases.
func (c *Edit) Apply(to *Definition) (*Definition, error) {
	d := *to
	if c.Leave {
		if to.Bundle == c.Bundle && to.Registered {
			d.Edits, d.Bundle, d.BundleFields = to.Edits.Without(to.BundleFields), "", nil
		}
		return &d, nil
	}
	d.Edits = c.Set.Over(to.Edits.Without(c.Clear))
	if err := c.erases(to, &d); err != nil {
		return nil, err
	}
	switch {
	case c.Bundle == "" || c.Bundle == to.Bundle:
	case c.TakeOver, to.Bundle == "" && to.Registered:
		d.Bundle = c.Bundle
	case to.Bundle != "":
		return nil, Refuse(jobs.Conflict, "job %s belongs to bundle %s, not to %s: change it there, or take it over", to.Key, to.Bundle, c.Bundle)
	}
	switch {
	case d.Bundle == "":
	case d.Bundle == c.Bundle:
		given := c.Set.Given()
		d.BundleFields = ordered(func(name string) bool {
			return slices.Contains(given, name) || slices.Contains(to.BundleFields, name) && !slices.Contains(c.Clear, name)
		})
	default: // fields that others change are theirs from now on
		changed := to.Edits.Changed(&d.Edits)
		d.BundleFields = ordered(func(name string) bool {
			return slices.Contains(to.BundleFields, name) && !slices.Contains(changed, name)
		})
	}
	return &d, nil
}

// erases refuses an edit that clears what a job without code does, or its schedule: no code would set them again, and
// the job's edits are their only copy. One work may replace another, and each can be emptied by name.
func (c *Edit) erases(to, after *Definition) error {
	if to.Registered {
		return nil
	}
	for _, name := range c.Clear {
		switch {
		case name == "schedule" && to.Edits.Schedule != nil && *to.Edits.Schedule != "" && after.Edits.Schedule == nil:
			return Refuse(jobs.Conflict, "job %s has no code that sets its schedule: set schedule to another one, or to an empty text to remove it", to.Key)
		case to.Edits.does(name) && !slices.ContainsFunc(doing, after.Edits.does):
			return Refuse(jobs.Conflict, "job %s has no code that replaces %s: set another of %s, or delete the job",
				to.Key, name, strings.Join(doing, ", "))
		}
	}
	return nil
}

// doing are the settings that say what a job without code does.
var doing = []string{WorkHTTP, WorkExec, "handler"}

// does reports whether s sets one of doing.
func (s *Settings) does(name string) bool {
	switch {
	case name == WorkHTTP && s.HTTP != nil:
		return !NoWork(*s.HTTP)
	case name == WorkExec && s.Exec != nil:
		return !NoWork(*s.Exec)
	}
	return name == "handler" && s.Handler != nil && *s.Handler != ""
}

// InBundle returns the bundle of the calendar after a write, or refuses the write as Conflict. A calendar that a user
// created joins a bundle only by TakeOver.
func (c *Calendar) InBundle(k SetCalendar) (string, error) {
	switch {
	case k.TakeOver:
		return k.Bundle, nil
	case k.Bundle != "" && c.Bundle != "" && k.Bundle != c.Bundle:
		return "", Refuse(jobs.Conflict, "calendar %s belongs to bundle %s, not to %s: change it there, or take it over", c.Name, c.Bundle, k.Bundle)
	}
	return c.Bundle, nil
}

// ordered returns the names of the fields that pass, in the order of [Fields].
func ordered(pass func(name string) bool) (names []string) {
	for _, name := range fieldNames {
		if pass(name) {
			names = append(names, name)
		}
	}
	return names
}

// SameBundle reports whether d and o belong to one bundle, which set the same fields of both.
func (d *Definition) SameBundle(o *Definition) bool {
	return d.Bundle == o.Bundle && slices.Equal(d.BundleFields, o.BundleFields)
}
