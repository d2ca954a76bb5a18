// Package judge says whether a scheduler has kept its promises, from the outside: it lays what clients were told and
// what handlers wrote down beside what the store says in the end, and beside the due times that there should have been.
//
// It is a witness of its own. It imports nothing of the scheduler, works due times out by walking from second to
// second, has its own table of legal moves, and speaks to no network and no process: whoever drives a system writes a
// [Case] down, and [Judge] reads it.
//
// Times of witnesses are [Moment]s. Where two processes of one machine are compared, their steady clocks are; a wall
// clock is only believed where a due time or a row of the store is concerned.
package judge
