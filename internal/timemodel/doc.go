// Package timemodel says what becomes of each due time of a job, given all that happened to the job: the reference that
// the tests of the control plane compare the product with. It is not promised.
//
// Where to start: [Fates]. The model is slow and obvious on purpose. It knows the whole history, looks at each half
// second of it, and shares no code with the product, so that it does not share its mistakes either. DESIGN.md has its
// rules, and where documents leave one open, the decision.
package timemodel
