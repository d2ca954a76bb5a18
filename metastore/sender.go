package metastore

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// What a sender may do to the rows that its command finds: a worker to those of its app, an operator or a client to the
// jobs of its scope, a person to its own sessions. What needs no rows is refused before, by Envelope.Check.

// permitted returns why the sender of the command may not do it, or nil. What does not exist is left to the command.
func (c *change) permitted() error {
	s := c.env.Sender
	if s == nil {
		return nil
	}
	of := kernel.TargetOf(c.env.Command)
	if of.Own {
		return c.permittedSession()
	}
	if s.Whole() {
		return nil
	}
	if k, ok := c.env.Command.(kernel.Register); ok {
		if s.App != k.App {
			return kernel.Refuse(jobs.Forbidden, "%s belongs to app %s and may not register jobs of app %.60q", c.env.Actor, s.App, k.App)
		}
	}
	if !of.Batch.IsZero() {
		if b := c.batch(of.Batch); b != nil { // a run that is added holds up its end
			if err := c.permittedJob(b.Then, ""); err != nil {
				return err
			}
		}
	}
	switch {
	case of.Job != "":
		return c.permittedJob(of.Job, of.App)
	case !of.Run.IsZero():
		return c.permittedRun(of.Run)
	case !of.Batch.IsZero():
		return nil
	}
	return s.PermitsAll()
}

// permittedJob is about a job as it is now. Of a deleted one, the key and the app count, if that is known.
func (c *change) permittedJob(key jobs.Key, app string) error {
	if d := c.definition(key); d != nil {
		return c.env.Sender.Permits(c.env.Actor, key, d.App, d.Policy.Tags)
	}
	if app == "" {
		return nil
	}
	return c.env.Sender.Permits(c.env.Actor, key, app, nil)
}

// permittedRun is about a live run: one that has settled does not change. A worker has those of its app, a scope those
// of its jobs as they are now: a job that has moved takes its runs along.
func (c *change) permittedRun(id jobs.ID) error {
	run := c.live(id)
	switch s := c.env.Sender; {
	case run == nil || run.Settled():
		return nil
	case s.App == "":
		return c.permittedJob(run.Key, run.App)
	case s.App != run.App:
		return kernel.Refuse(jobs.Forbidden, "%s belongs to app %s: run %s is of another", c.env.Actor, s.App, id)
	}
	return nil
}

// permittedSession refuses people the sessions of others. An admin may end those that may act in the admin's tenant.
func (c *change) permittedSession() error {
	var id string
	s := c.env.Sender
	switch k := c.env.Command.(type) {
	case kernel.Touch:
		id = k.ID
	case kernel.SignOut:
		id = k.ID
	default:
		return nil
	}
	row := c.session(id)
	if row == nil {
		return nil
	}
	here := s.Home == "" || s.Home == c.env.Tenant
	if s.As == kernel.AsAdmin && (here || row.In(s.Home) != nil) || here && c.env.Actor == c.sessionActor(row) {
		return nil
	}
	return kernel.Refuse(jobs.Forbidden, "the session belongs to %s: only an admin may end sessions of others", c.sessionActor(row))
}

// sessionActor is the person of a session, as commands name it; "" if its token is gone.
func (c *change) sessionActor(s *kernel.Session) string {
	if s.Token == "" {
		return s.Person.Actor()
	}
	if t := c.token(s.Token); t != nil {
		return kernel.PersonPrefix + t.Name
	}
	return ""
}
