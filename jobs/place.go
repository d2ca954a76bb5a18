package jobs

// Route says which of the workers that may take a run is offered it.
type Route string

// The routes. "Free" is a worker with a free slot; the order is that of the workers' names.
const (
	RouteAny           Route = "any"             // whichever asks first
	RouteFirst         Route = "first"           // the first one that is free
	RouteLast          Route = "last"            // the last one that is free
	RouteRoundRobin    Route = "round_robin"     // those that are free, in turn
	RouteRandom        Route = "random"          // one of those that are free, by chance
	RouteHash          Route = "consistent_hash" // always the same one for the same key; the run waits for it
	RouteLeastRecent   Route = "least_recent"    // the free one whose last run of the job is the longest ago
	RouteLeastFrequent Route = "least_frequent"  // the free one that got the fewest runs of the job within a day
	RouteFailover      Route = "failover"        // the first one that lives; the run waits for it
	RouteIdle          Route = "idle"            // one that runs nothing
	RouteBroadcast     Route = "broadcast"       // each of them: one run becomes as many as there are
)

// PinAway says what becomes of a run whose named worker is not there.
type PinAway string

// The answers to a named worker that is away.
const (
	PinWait PinAway = "wait" // it waits until that worker is back
	PinAny  PinAway = "any"  // it goes to another, as the route says
)

// CodeVersion says by which version of the job's code a run may be done, while a new one is rolled out.
type CodeVersion string

// The answers to workers with different versions.
const (
	CodeAny     CodeVersion = "any"     // any that a worker has
	CodeCurrent CodeVersion = "current" // that of the definition when the run was made, or a later one
)
