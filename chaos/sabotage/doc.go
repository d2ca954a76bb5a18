// Package sabotage tries the judge: it has nothing but tests. They run a whole Carillon in virtual time, with two
// control planes, workers that die and are cut off, a bus that loses and repeats, a store that fails and does things
// twice, and clocks that are wrong, and have the judge look at it. Whole, it keeps its promises; with a mechanism
// turned off (see internal/sabotage), the judge must name the broken guarantee.
//
// It is not promised to programs outside this module.
package sabotage
