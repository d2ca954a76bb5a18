package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// backfill is decided by the job's present state. A due time with an exclamation mark is replayed.
func (tl *telling) backfill(tenant jobs.Tenant, w words) kernel.Command {
	k := kernel.Backfill{ID: tl.run(w.name(0)), Key: jobs.Key(w.name(1)), Parallel: tl.number(or(w.take("parallel"), "1")),
		Take: tl.ranges(w.take("take")), Give: tl.ranges(w.take("give"))}
	k.Job = kernel.DerivedID("none")
	if d, err := tl.h.Store.Definition(tl.t.Context(), tenant, k.Key); err == nil {
		k.Job = d.UID
	}
	other := w.take("job")
	if other != "" {
		k.Job = tl.run(other)
	}
	if p := w.take("priority"); p != "" {
		k.Priority = new(tl.number(p))
	}
	for due := range strings.SplitSeq(w.take("due"), ",") {
		at, replay := strings.CutSuffix(due, "!")
		one := kernel.BackfillDue{At: tl.at(at), Replay: replay}
		k.Due = append(k.Due, one)
		name := w.name(1) + "@" + at
		if replay {
			name += "!" + w.name(0)
		}
		if other == "" {
			tl.names[k.Run(tenant, one)] = name
		}
	}
	return k
}

// ranges reads +10s..+20s/11/paused, with commas between them.
func (tl *telling) ranges(text string) (list []kernel.Missed) {
	if text == "" {
		return nil
	}
	for m := range strings.SplitSeq(text, ",") {
		part := strings.Split(m, "/")
		from, to, _ := strings.Cut(part[0], "..")
		list = append(list, kernel.Missed{From: tl.at(from), To: tl.at(to), Count: uint64(tl.number(part[1])), Reason: kernel.Reason(part[2])})
	}
	return list
}

// backfill requests runs of a recurring job for some past seconds: the first one of a missed range, which it mostly
// takes out of the ledger, and others once more. It never requests a forgotten run as one that did not run: ops
// checks that before.
func (f *fate) backfill(d *kernel.Definition, s *scene) kernel.Command {
	k := kernel.Backfill{ID: runID(fmt.Sprint("backfill", f.made)), Key: d.Key, Job: d.UID, Parallel: 1 + f.IntN(2)}
	if f.rarely(3) {
		k.Priority = new(f.IntN(5) - 2)
	}
	for _, row := range s.old {
		if m, ok := row.(*kernel.Missed); ok && m.Tenant == d.Tenant && m.Job == d.UID && !f.rarely(4) {
			k.Take = []kernel.Missed{*m}
			k.Due = []kernel.BackfillDue{{At: m.From}}
			if m.Count > 1 && m.To.Sub(m.From) >= time.Second {
				k.Give = []kernel.Missed{{From: m.From.Add(time.Second), To: m.To, Count: m.Count - 1, Reason: m.Reason}}
			}
			break
		}
	}
	if len(k.Take) > 0 && f.rarely(10) {
		k.Take[0].Count++
	}
	at := d.Cursor.Add(-time.Duration(f.IntN(6)) * time.Second)
	for range 1 + f.IntN(3) {
		if n := len(k.Due); n == 0 || at.After(k.Due[n-1].At) {
			k.Due = append(k.Due, kernel.BackfillDue{At: at, Replay: true})
		}
		at = at.Add(time.Second)
	}
	return k
}
