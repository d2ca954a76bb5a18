// Package judge checks from the outside whether a scheduler kept its guarantees: it compares the responses to clients,
// the journals of handlers, the store's final content and the expected due times.
//
// It is not promised to programs outside this module.
//
// Where to start: [Judge], which reads a [Case] that the driver of a system recorded. The judge is independent: it
// imports nothing of the scheduler, computes due times second by second, has its own table of legal moves, and uses no
// network and no process.
//
// Sharp edges: times are [Moment]s. Processes of one machine are compared by their monotonic clocks; wall clocks matter
// only for due times and rows of the store.
package judge
