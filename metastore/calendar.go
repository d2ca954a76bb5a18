package metastore

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Calendars: named sets of times at which jobs are not due. This code does not know their rules; it counts changes of
// them in the tenant's Global, so that no due time is decided by outdated rules.

func (c *change) calendar(name string) *kernel.Calendar {
	row, _ := c.tx.Get(kernel.CalendarRef(c.env.Tenant, name)).(*kernel.Calendar)
	return row
}

func (c *change) setCalendar(k kernel.SetCalendar) error {
	row := c.calendar(k.Name)
	want := &kernel.Calendar{Tenant: c.env.Tenant, Name: k.Name, Description: k.Description, Zone: k.Zone, Rules: k.Rules,
		By: c.env.Actor, Created: c.at, Edited: c.at, Revision: 1, Bundle: k.Bundle}
	if row != nil {
		var err error
		if want.Bundle, err = row.InBundle(k); err != nil {
			return err
		}
		next := row.Edit(want, c.at, c.env.Actor)
		if next == nil {
			c.effect.Existing, c.effect.Global = true, c.global()
			return nil
		}
		want = next
	}
	if k.IfRevision != 0 && (row == nil || k.IfRevision != row.Revision) {
		return staleCalendar(k.Name, row, k.IfRevision)
	}
	if row == nil && c.global().CalendarCount >= kernel.MaxCalendarsOfTenant {
		return kernel.Exhausted(kernel.BoundCalendars, "too many calendars: %d are allowed (calendar %s)", kernel.MaxCalendarsOfTenant, k.Name)
	}
	c.tx.Put(want)
	c.calendarsChanged(row == nil, false)
	c.audit("calendar "+k.Name, calendarFields(row), calendarFields(want))
	return nil
}

func (c *change) dropCalendar(k kernel.DropCalendar) error {
	row := c.calendar(k.Name)
	if row == nil {
		c.effect.Existing, c.effect.Global = true, c.global()
		return nil
	}
	if k.IfRevision != 0 && k.IfRevision != row.Revision {
		return staleCalendar(k.Name, row, k.IfRevision)
	}
	if k.Bundle != "" && k.Bundle != row.Bundle {
		return kernel.Refuse(jobs.Conflict, "calendar %s is not in bundle %s, which may not delete it", k.Name, k.Bundle)
	}
	c.tx.Delete(row.Ref())
	c.calendarsChanged(false, true)
	c.audit("calendar "+k.Name, calendarFields(row), nil)
	return nil
}

func staleCalendar(name string, row *kernel.Calendar, want uint64) error {
	is := uint64(0)
	if row != nil {
		is = row.Revision
	}
	return kernel.Refuse(jobs.Stale, "calendar %s has revision %d, the change was made for %d: read it and try again", name, is, want)
}

// calendarsChanged has the leader read the calendars again.
func (c *change) calendarsChanged(added, dropped bool) {
	c.number()
	c.count(func(g *kernel.Global) {
		g.Calendars++
		switch {
		case added:
			g.CalendarCount++
		case dropped:
			g.CalendarCount--
		}
	})
	c.effect.Global = c.global()
}

// calendarFields is a calendar in an audit.
func calendarFields(k *kernel.Calendar) fields {
	if k == nil {
		return nil
	}
	f := fields{"rules": k.Rules}
	if k.Zone != "" {
		f["zone"] = k.Zone
	}
	if k.Description != "" {
		f["description"] = k.Description
	}
	if k.Bundle != "" {
		f["bundle"] = k.Bundle
	}
	return f
}
