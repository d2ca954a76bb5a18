package worker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Of a run that goes back because no poll asked for it, a poll that comes before its handler has returned gets nothing,
// and asks for as many as if it were gone.
func TestWithdrawnTurns(t *testing.T) {
	r, err := NewRemote(Config{Name: "h"}, "s1", About{}, nil, nil, kernel.Declaration{Key: "j", Kind: kernel.Triggered})
	if err != nil {
		t.Fatal(err)
	}
	a := &turn{attempt: &attempt{token: token{jobs.ID{1}, 1}}}
	if !r.take(a) || !r.withdraw(a) {
		t.Fatal("it is not withdrawn")
	}
	r.polling = make(chan struct{})
	if list, _, _, _ := r.next(r.polling, 2); len(list) != 0 || r.slots != 2 {
		t.Errorf("a poll gets %v, and there are %d slots", list, r.slots)
	}
	b := &turn{attempt: &attempt{token: token{jobs.ID{2}, 1}, in: &kernel.Run{}, renewed: time.Now()}}
	if !r.take(b) {
		t.Fatal("it is not taken")
	}
	if list, _, _, _ := r.next(r.polling, 2); len(list) != 1 || r.withdraw(b) {
		t.Errorf("a poll gets %v, and a turn that the HTTP worker has is withdrawn", list)
	}
}
