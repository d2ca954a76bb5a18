package jobs

// Effect is what a command did: the rows as they now are. History, cache invalidation, offers to workers and the
// live dashboard are all made of effects.
type Effect struct {
	Instances   []*Instance
	Definitions []*Definition
	Missed      []*Missed
	Global      *Global
	// Existing says that nothing was done because it had been done before: the command was sent twice, or its
	// unique key is held. The rows are those that were there.
	Existing bool
}

// Instance is the first run of the effect, or nil: what Create, Claim, Finish and Cancel answer with.
func (e Effect) Instance() *Instance {
	if len(e.Instances) == 0 {
		return nil
	}
	return e.Instances[0]
}

// Definition is the first definition of the effect, or nil.
func (e Effect) Definition() *Definition {
	if len(e.Definitions) == 0 {
		return nil
	}
	return e.Definitions[0]
}
