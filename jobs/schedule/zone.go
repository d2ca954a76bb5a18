package schedule

import (
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
)

// The calendar of this package begins with 1970 and ends with 2199: firstSecond
// is the first second of the one and endSecond the first after the other, both
// as Unix seconds and as local seconds (see span).
const (
	firstYear = 1970
	lastYear  = 2199

	daySeconds  = 24 * 60 * 60
	firstSecond = 0
	endSecond   = 84006 * daySeconds
)

// The instants between which anything can be due anywhere: local time is never
// two days away from UTC.
var (
	earliest = time.Unix(firstSecond-2*daySeconds, 0).UTC()
	latest   = time.Unix(endSecond+2*daySeconds, 0).UTC()
)

// A span is a stretch of time in which the offset from UTC does not change. It
// begins at start (Unix seconds) and ends where the next one starts.
//
// Within a span, local time is simply Unix time plus offset. "Local seconds"
// here always means that sum: the wall clock, read as if it were UTC.
type span struct {
	start, offset int64
}

// zone is a time zone as the list of its spans. time.Location has the same data, but returns it one instant at a time,
// and beyond the last recorded change it evaluates the rule anew each time.
type zone struct {
	name     string
	location *time.Location
	spans    []span
	// The last span is a sentinel that starts after every instant of the
	// calendar, so that each real span has an end.
}

// knownZones caches what loadZone built. Nothing in it ever changes, and the
// list of names bounds it to a few megabytes.
var knownZones sync.Map // name -> *zone

// loadZone returns the zone with exactly this name in the database; the empty name means UTC.
func loadZone(name string) (*zone, *Error) {
	if name == "" {
		name = "UTC"
	}
	if z, ok := knownZones.Load(name); ok {
		return z.(*zone), nil
	}
	if name == "Local" {
		return nil, refuse("zone", 0, "Local differs from machine to machine; name a zone such as Europe/Berlin")
	}
	file, ok := database()[name]
	if !ok {
		meant := ""
		if best, far := plain.Closest(name, database()); far <= plain.Slip {
			meant = "; did you mean " + best + "?"
		}
		return nil, refuse("zone", 0, "%s is not a name in the time zone database%s", quote(name), meant)
	}
	location, err := readLocation(name, file)
	if err != nil {
		return nil, refuse("zone", 0, "%s cannot be loaded: %v", quote(name), err)
	}
	z, _ := knownZones.LoadOrStore(name, newZone(name, location))
	return z.(*zone), nil
}

func newZone(name string, location *time.Location) *zone {
	z := &zone{name: name, location: location}
	for at := earliest.In(location); ; {
		_, offset := at.Zone()
		// A change of the abbreviation alone is not a change of the clock.
		if n := len(z.spans); n == 0 || z.spans[n-1].offset != int64(offset) {
			z.spans = append(z.spans, span{at.Unix(), int64(offset)})
		}
		_, end := at.ZoneBounds()
		if end.IsZero() || end.After(latest) {
			break
		}
		// By rule, ZoneBounds ends a year after 365 days: on the last day of a
		// leap year its answer lies behind us.
		if !end.After(at) {
			end = at.Add(24 * time.Hour)
		}
		at = end
	}
	tail := z.spans[len(z.spans)-1].offset
	z.spans = append(z.spans, span{latest.Unix(), tail})
	return z
}

// find returns the index of the span that holds the instant; instants outside
// the calendar belong to the first or the last real span.
func (z *zone) find(unix int64) int {
	low, high := 0, len(z.spans)-1
	for high-low > 1 {
		middle := int(uint(low+high) / 2)
		if z.spans[middle].start <= unix {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// local returns the local seconds of an instant.
func (z *zone) local(unix int64) int64 {
	return unix + z.spans[z.find(unix)].offset
}

// policies is how a schedule treats wall times that do not exist or happen
// twice. The zero value is the default for fixed-time expressions.
type policies struct {
	flowing bool // every existing wall time counts, on each of its passes
	gap     Gap
	overlap Overlap
}

// window returns the stretch of local seconds [low, high) that span i answers
// for. Left alone this is what the wall clock shows during the span: windows
// then leave the gaps out and cover the overlaps twice, which is what flowing
// expressions want. The policies only stretch and trim it. Under the defaults
// the windows tile local time exactly: each wall time, existing or not, belongs
// to one instant.
func (z *zone) window(i int, p policies) (low, high int64) {
	this, next := z.spans[i], z.spans[i+1]
	low, high = this.start+this.offset, next.start+this.offset
	if p.flowing {
		return low, high
	}
	if i > 0 {
		before := this.start + z.spans[i-1].offset // where the window before ends
		gap, overlap := before < low, before > low
		if gap && p.gap == GapAfter || overlap && p.overlap == OverlapFirst {
			low = before
		}
	}
	after := next.start + next.offset // where the window after begins
	gap, overlap := high < after, high > after
	if gap && p.gap == GapBefore || overlap && p.overlap == OverlapSecond {
		high = after
	}
	return low, high
}

// instant turns local seconds that lie in the window of span i into Unix
// seconds. A wall time inside a gap becomes the nearest instant of the span.
func (z *zone) instant(i int, local int64) int64 {
	return min(max(local-z.spans[i].offset, z.spans[i].start), z.spans[i+1].start-1)
}

// resolve turns any local seconds into an instant under the defaults: after the
// gap, on the first pass.
func (z *zone) resolve(local int64) int64 {
	// No offset exceeds a day, so the span is one of the few around this one.
	i := z.find(local - daySeconds)
	for i < len(z.spans)-2 {
		if _, high := z.window(i, policies{}); local < high {
			break
		}
		i++
	}
	return z.instant(i, local)
}
