package dispatch

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

var scenes = []scene{
	{name: "short", runs: 2, takes: 1, slots: []int{1, 1}},
	{name: "long", runs: 2, takes: 25, slots: []int{1, 1}},
	{name: "one slot", runs: 3, takes: 3, slots: []int{1, 0}},
	{name: "cancelled", runs: 1, takes: 2, slots: []int{1, 1}, cancels: true},
	{name: "deadly", runs: 1, takes: 2, slots: []int{1, 1}, deadly: true},
}

// explorer plays a scene with every script of at most some faults, until one violates in the way that is wanted.
type explorer struct {
	scene scene
	off   rules
	most  int
	want  string // part of the violation
	seen  map[uint64]bool
	// played counts scripts; pruned those that came to a state from which all had been played.
	played, pruned int
}

func (e *explorer) find() ([]strike, bool) {
	e.seen = map[uint64]bool{}
	return e.from(nil)
}

func (e *explorer) from(script []strike) ([]strike, bool) {
	last, left := -1, e.most-len(script)
	if n := len(script); n > 0 {
		last = script[n-1].point
	}
	cut := false
	w := play(e.scene, script, e.off, false, func(w *world) bool {
		if left == 0 || len(w.points) <= last || w.now > faultsUpTo {
			return false
		}
		k := w.key(left)
		cut = e.seen[k]
		e.seen[k] = true
		return cut
	})
	e.played++
	if cut {
		e.pruned++
	}
	if w.fault != "" {
		return script, strings.Contains(w.fault, e.want)
	}
	if left == 0 {
		return nil, false
	}
	for p := last + 1; p < len(w.points); p++ {
		for f := 1; f <= w.points[p]; f++ {
			if found, ok := e.from(append(script[:len(script):len(script)], strike{p, f})); ok {
				return found, true
			}
		}
	}
	return nil, false
}

var seed = maphash.MakeSeed()

// key is a digest of everything that decides what can still happen.
func (w *world) key(left int) uint64 {
	var b strings.Builder
	fmt.Fprint(&b, left, w.now, w.term, w.rows, name(w.cancelled), w.acknowledged, plainly(w.later), plainly(w.queue))
	for _, a := range slices.SortedFunc(maps.Keys(w.begun), compare) {
		fmt.Fprint(&b, "b", name(a), w.begun[a])
	}
	for _, a := range slices.SortedFunc(maps.Keys(w.said), compare) {
		fmt.Fprint(&b, "s", name(a))
	}
	for _, l := range w.leaders {
		fmt.Fprint(&b, "L", l.stale, l.frozen, l.ready, plainly(l.inbox), l.term, l.sure)
		for i := range w.workers {
			if c := l.seats[workerOf(i)]; c != nil {
				fmt.Fprint(&b, "c", c.credit, c.heard, c.heardAt, len(c.silent))
			}
		}
		for i := range w.rows {
			if k := l.runs[attempt(i, 0).Run]; k != nil {
				fmt.Fprint(&b, "r", k.N, k.Worker(), k.phase, k.pushes, k.pushed, k.process, k.until, k.began, k.place > 0, k.open, k.heard)
			}
		}
	}
	for _, p := range w.workers {
		fmt.Fprint(&b, "W", p.dead, p.frozen, plainly(p.inbox), p.knows, p.silent, p.named, p.order)
		for _, a := range slices.SortedFunc(maps.Keys(p.held), compare) {
			fmt.Fprint(&b, "h", name(a), *p.held[a])
		}
		for _, a := range slices.SortedFunc(maps.Keys(p.past), func(a, b begun) int { return compare(a.Attempt, b.Attempt) }) {
			fmt.Fprint(&b, "p", name(a.Attempt), p.past[a])
		}
		for i := range w.rows {
			fmt.Fprint(&b, "y", p.busy[attempt(i, 0).Run].N)
		}
		for _, m := range []any{p.ends, p.reports, p.strays, p.renewed} {
			fmt.Fprint(&b, "m", m) // fmt sorts keys
		}
	}
	return maphash.String(seed, b.String())
}

// plainly has messages printed with all their fields.
func plainly(list []message) (plain []fields) {
	for _, m := range list {
		plain = append(plain, fields(m))
	}
	return plain
}

type fields message

// No script violates the protocol: of one fault by default, of two in CI, of three in an hour.
func TestNoScriptViolates(t *testing.T) {
	tests.WithoutRace(t)
	for _, s := range scenes {
		e := explorer{scene: s, most: tests.Size(1, 2, 3)}
		found, ok := e.find()
		t.Logf("%s: %d scripts of %d faults; %d came to a state that another had come to", s.name, e.played, e.most, e.pruned)
		if ok {
			w := play(s, found, 0, true, nil)
			t.Errorf("%s: %v: %s\n%s", s.name, found, w.fault, w.story())
		}
	}
}

// without is what goes wrong without each rule, and with how many faults in which scene.
var without = [numRules]struct {
	scene  scene
	faults int
	want   string
}{
	FirstOnly:   {scenes[0], 2, "which is not its own any more"},
	Fresh:       {scenes[0], 1, "which is not its own any more"},
	Sure:        {isolated, 2, "although its worker was answered"},
	Grant:       {isolated, 3, "although its worker was answered"},
	Once:        {scenes[0], 1, "begins twice"},
	AnswerFirst: {scenes[4], 0, "as one that never began"},
	Reserve:     {scenes[0], 0, "has no slot"},
	Repeat:      {scenes[0], 1, "although its worker lives"},
	Renew:       {scenes[4], 1, "although its worker was answered"},
	Unstart:     {scenes[1], 2, "has not ended"},
	Certain:     {scenes[3], 2, "begins after its cancel was acknowledged"},
}

var isolated = scene{name: "isolated", runs: 1, takes: 25, slots: []int{1}}

// Each rule is needed: without it, some script violates, and with it, that one does not.
func TestEachRuleIsNeeded(t *testing.T) {
	tests.Long(t)
	tests.WithoutRace(t)
	for r := range numRules {
		x := without[r]
		e := explorer{scene: x.scene, off: 1 << r, most: x.faults, want: x.want}
		script, ok := e.find()
		if !ok {
			t.Errorf("without %v: none of %d scripts violates", r, e.played)
			continue
		}
		w := play(x.scene, script, 1<<r, true, nil)
		t.Logf("without %v: %v after %d scripts: %s\n%s", r, script, e.played, w.fault, w.story())
		if w := play(x.scene, script, 0, true, nil); w.fault != "" {
			t.Errorf("with %v, too: %s\n%s", r, w.fault, w.story())
		}
	}
}
