package jobs

import "time"

// Effect is what a command did: the rows as they now are. History, cache invalidation, offers to workers and the
// live dashboard are all made of effects.
type Effect struct {
	Instances   []*Instance
	Definitions []*Definition
	Missed      []*Missed
	Global      *Global
	Token       *Token // as Grant made it
	// Existing says that nothing was done because it had been done before: the command was sent twice, or its
	// unique key is held. The rows are those that were there.
	Existing bool
	// Receipt stands for the rows where the asker has no use for them: workers and programs are told over the bus how a
	// run stands, and not what they have just said of it themselves.
	Receipt *Receipt
}

// Receipt is how a run stands after a command.
type Receipt struct {
	ID        ID
	Key       Key
	State     State
	Cause     Cause
	Due       time.Time
	Attempt   uint32
	RetryAt   time.Time
	Lingering bool
}

// Receipt is how the run stands.
func (in *Instance) Receipt() Receipt {
	return Receipt{ID: in.ID, Key: in.Key, State: in.State, Cause: in.Cause, Due: in.Due, Attempt: in.Attempt, RetryAt: in.RetryAt, Lingering: in.Lingering}
}

// Instance is the run that a receipt tells of, without what it does not tell.
func (r *Receipt) Instance() *Instance {
	return &Instance{ID: r.ID, Key: r.Key, State: r.State, Cause: r.Cause, Due: r.Due, Attempt: r.Attempt, RetryAt: r.RetryAt, Lingering: r.Lingering}
}

// Instance is the first run of the effect, or nil: what Create, Claim, Finish and Cancel answer with. Of a receipt it
// has what that tells.
func (e Effect) Instance() *Instance {
	switch {
	case len(e.Instances) > 0:
		return e.Instances[0]
	case e.Receipt != nil:
		return e.Receipt.Instance()
	}
	return nil
}

// Stands is how the first run of the effect stands, if there is one.
func (e *Effect) Stands() (Receipt, bool) {
	switch {
	case e.Receipt != nil:
		return *e.Receipt, true
	case len(e.Instances) > 0:
		return e.Instances[0].Receipt(), true
	}
	return Receipt{}, false
}

// Definition is the first definition of the effect, or nil.
func (e Effect) Definition() *Definition {
	if len(e.Definitions) == 0 {
		return nil
	}
	return e.Definitions[0]
}
