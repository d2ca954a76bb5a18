package controlplane

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
)

// A leader that was frozen notices its end when it wakes: long after the next leader began. Terms never overlap all the
// same, whichever node reports them, and in whatever order.
func TestTermsDoNotOverlap(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	unknown := bus.Term{Node: "c", Term: 4}
	frozen := []bus.Term{{Node: "a", Term: 3, Since: at(0), Until: at(33), Why: "leadership was lost"}}
	next := []bus.Term{unknown, {Node: "b", Term: 5, Since: at(12)}}
	for _, order := range [][][]bus.Term{{frozen, next}, {next, frozen}} {
		var cp ControlPlane
		for _, report := range order {
			cp.terms.merge(report)
		}
		list := cp.Elections()
		if len(list) != 3 || list[0].Node != "b" || !list[0].Until.IsZero() {
			t.Fatalf("elections are %+v", list)
		}
		if a := list[2]; !a.Since.Equal(at(0)) || !a.Until.Equal(at(12)) || a.Why != "leadership was lost" {
			t.Errorf("the frozen leader's term is %+v: want it to end when the next began, at 12 s", a)
		}
	}

	// What ended before the next began stays, and no term ends before it began, whatever the clocks of nodes are.
	var cp ControlPlane
	cp.terms.merge([]bus.Term{{Node: "a", Term: 1, Since: at(0), Until: at(5), Why: "it was stopped"}, {Node: "b", Term: 2, Since: at(9)}, {Node: "c", Term: 3, Since: at(8)}})
	list := cp.Elections()
	if !list[2].Until.Equal(at(5)) || !list[1].Until.Equal(at(9)) {
		t.Errorf("elections are %+v", list)
	}
}
