package ops

import (
	"context"
	"errors"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// PlannedCalendar is the planned change of a calendar.
type PlannedCalendar struct {
	Name   string
	Does   string // DoesCreate, DoesEdit, DoesNothing, DoesDelete or DoesKeep
	Differ []Difference
	Next   []Excluded // the next due times that it would exclude, of the jobs that use it now
	Jobs   []jobs.Key // DoesKeep: the jobs that use it
}

// stated is the calendars of a tenant after a plan: the existing ones, replaced by the desired ones.
type stated struct {
	plans []PlannedCalendar
	batch []kernel.Command
	all   *schedule.Calendars // nil = as they are
}

// planCalendars returns the changes that desired calendars need.
func (o *Ops) planCalendars(ctx context.Context, who Who, wanted []kernel.SetCalendar, how How) (stated, error) {
	var s stated
	if len(wanted) == 0 {
		return s, nil
	}
	if len(wanted) > MaxWanted {
		return s, kernel.Invalid("too many calendars: %d, at most %d in one request", len(wanted), MaxWanted)
	}
	rows, err := o.Calendars(ctx, who)
	if err != nil {
		return s, err
	}
	rows = slices.Clone(rows)
	seen := map[string]bool{}
	for _, k := range wanted {
		if seen[k.Name] {
			return s, kernel.Invalid("calendar %s is given twice", k.Name)
		}
		seen[k.Name] = true
		if err := checkCalendar(k); err != nil {
			return s, err
		}
		k.Bundle, k.TakeOver = how.Bundle, how.TakeOver
		row := &kernel.Calendar{Tenant: who.tenant(), Name: k.Name, Description: k.Description, Zone: k.Zone, Rules: k.Rules, Bundle: k.Bundle}
		p := PlannedCalendar{Name: k.Name, Does: DoesCreate}
		was := &kernel.Calendar{}
		if i := slices.IndexFunc(rows, func(c *kernel.Calendar) bool { return c.Name == k.Name }); i < 0 {
			rows = append(rows, row)
		} else {
			was, p.Does = rows[i], DoesEdit
			if row.Bundle, err = was.InBundle(k); err != nil {
				return s, err
			}
			k.IfRevision, rows[i] = was.Revision, row
		}
		for _, f := range []struct {
			name     string
			old, new any
			same     bool
		}{{"description", was.Description, k.Description, was.Description == k.Description}, {"zone", was.Zone, k.Zone, was.Zone == k.Zone}, {"rules", was.Rules, k.Rules, slices.Equal(was.Rules, k.Rules)},
			{"bundle", was.Bundle, row.Bundle, was.Bundle == row.Bundle || p.Does == DoesCreate}} {
			if !f.same {
				p.Differ = append(p.Differ, Difference{Field: f.name, Old: f.old, New: f.new})
			}
		}
		if len(p.Differ) == 0 && p.Does == DoesEdit {
			p.Does = DoesNothing
		} else {
			s.batch = append(s.batch, k)
			after, err := o.previewCalendar(ctx, who, row)
			if err != nil {
				return s, err
			}
			p.Next = after.Next[:min(len(after.Next), planNext)]
		}
		s.plans = append(s.plans, p)
	}
	if len(s.batch) > 0 {
		s.all = timetable.Calendars(0, rows)
	}
	return s, nil
}

// checkCalendar refuses invalid rules.
func checkCalendar(k kernel.SetCalendar) error {
	if err := kernel.CheckCommand(k); err != nil {
		return err
	}
	_, err := schedule.ParseCalendar(k.Name, k.Zone, k.Rules)
	if at, ok := errors.AsType[*schedule.Error](err); ok {
		return kernel.Invalid("calendar %s, %s", k.Name, at.Error())
	}
	return err
}

// excluding sets a plan's next due times with calendars that are not written yet.
func (o *Ops) excluding(d *kernel.Definition, p *Planned, all *schedule.Calendars) error {
	if all == nil || len(d.Policy.Calendars) == 0 || d.Waits() {
		return nil
	}
	when, err := timetable.Plan(d, all)
	if err != nil || when == nil {
		return err
	}
	p.NextThen = ahead(when, o.Now(), planNext)
	return nil
}

// about names the target of a command.
func about(k kernel.Command) string {
	switch k := k.(type) {
	case kernel.SetCalendar:
		return "calendar " + k.Name
	case kernel.DropCalendar:
		return "calendar " + k.Name
	case kernel.Register:
		return "job " + string(k.Job.Key)
	case kernel.Edit:
		return "job " + string(k.Key)
	case kernel.Pause:
		return "job " + string(k.Key)
	}
	return k.Verb().String()
}
