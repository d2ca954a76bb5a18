package storetest

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// denied reads a Denied.
func (tl *telling) denied(w words) kernel.Command {
	d := kernel.Denial{Actor: w.take("who"), Target: w.name(0), From: w.take("from"), Why: w.take("why"), Times: 1, First: tl.at(w.take("first")), Last: tl.at(w.take("last"))}
	if n := w.take("times"); n != "" {
		d.Times = uint64(tl.number(n))
	}
	return kernel.Denied{List: []kernel.Denial{d}}
}
