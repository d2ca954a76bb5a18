package ops

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// Forecast is the number of planned fires in each minute of the next 24 hours.
type Forecast struct {
	From    time.Time // start of the first minute
	Fires   []int     // planned fires in each minute from then on
	Usual   int       // median of the minutes
	Jobs    int       // jobs with planned fires
	Left    int       // jobs not counted: not yet, or because counting would take too long
	Crowded []Crowd   // the fullest minutes, fullest first; none while Going
	Going   bool      // incomplete: repeat the request to continue
}

// Crowd is a minute with far more fires than most.
type Crowd struct {
	At    time.Time
	Fires int
	Jobs  []Firing // jobs that fire then: first those that could fire at another minute
	More  int      // jobs that are not listed
}

// Firing is a job that fires in a crowded minute, with a quieter alternative.
type Firing struct {
	Key      jobs.Key
	Fires    int    // in that minute
	Schedule string // as it is
	Instead  string // the same at the quietest minute of the hour; "" = none is better, or the schedule cannot express it
	Spread   string // the same at a minute that is chosen by the job's key (H); "" where Instead is
	Then     int    // max fires, with its own, of a minute in which it would fire instead
}

const (
	forecastFor   = 24 * 60    // minutes
	forecastLook  = 20_000_000 // due times in all: some seconds
	crowds        = 12         // minutes that are listed
	crowdNamed    = 10         // jobs of each
	crowdMoved    = 5          // proposals for each
	crowdTried    = 500        // jobs for which one is searched, in all
	crowdFactor   = 3          // a crowded minute has this multiple of the median
	crowdDistance = 5          // and this many more at least
)

// cohort is the jobs with the same due times.
type cohort struct {
	defs []*kernel.Definition
	in   [(forecastFor + 63) / 64]uint64 // bit n: due in minute n
	most int                             // fires of one job in a minute
}

func (c *cohort) has(minute int) bool { return c.in[minute/64]>>(minute%64)&1 == 1 }

// outlook is a forecast in progress.
type outlook struct {
	Forecast
	o       *Ops
	now     time.Time
	global  *kernel.Global
	cohorts []*cohort
	counted int           // of them
	plan    []int         // Fires, with the moves that were proposed
	looked  int           // due times
	tried   int           // jobs for which a quieter minute was looked for
	took    time.Duration // so far
}

// sameTimes is the key of jobs with the same due times.
type sameTimes struct {
	schedule, zone, calendars string
	start, end                time.Time
	gap                       jobs.Gap
	twice                     jobs.Twice
}

// gather groups jobs with the same due times: in large installations most jobs share theirs.
func (l *outlook) gather(rows []*kernel.Definition) {
	known := map[sameTimes]*cohort{}
	for _, d := range rows {
		p := &d.Policy
		if p.Schedule == "" || p.Disabled || d.Gone() || d.Waits() || !d.Stopped.IsZero() || d.Paused != nil && d.Paused.Until.IsZero() {
			continue
		}
		alone := d.Paused != nil || p.Jitter != 0 || p.Early != 0 || p.TTL != 0 || !schedule.SameForAll(p.Schedule)
		same := sameTimes{p.Schedule, p.Zone, strings.Join(p.Calendars, "\x00"), p.Start, p.End, p.Gap, p.Twice}
		c := known[same]
		if c == nil || alone {
			c = &cohort{}
			l.cohorts = append(l.cohorts, c)
		}
		if c.defs = append(c.defs, d); !alone {
			known[same] = c
		}
	}
}

// each calls fn with the minutes of a job's fires and their number in each. False: it would take too long.
func (l *outlook) each(d *kernel.Definition, fn func(minute, n int)) bool {
	when, err := l.o.dueBy(d, l.global)
	if err != nil || when == nil {
		return true // its page shows why
	}
	until := l.From.Add(forecastFor * time.Minute)
	after := l.now.Add(-1 - max(0, d.Policy.Jitter-d.Policy.Early)) // starts that are spread may be of earlier due times
	spread, delay := d.Policy.Jitter != 0 || d.Policy.Early != 0, d.FixedDelay()
	for {
		due, ok := when.Next(after)
		if !ok || due.Add(-d.Policy.Early).Compare(until) >= 0 {
			return true
		}
		if l.looked++; l.looked > forecastLook {
			return false
		}
		n, at := when.InMinute(due), due
		after = due
		if n > 1 {
			after = due.Truncate(time.Minute).Add(time.Minute - 1)
		} else if spread {
			at = d.Starts(due)
		}
		if paused := d.Paused; paused != nil && due.Before(paused.Until) {
			continue
		}
		if minute := int(at.Sub(l.From) / time.Minute); !at.Before(l.From) && minute < forecastFor {
			fn(minute, n)
		}
		if delay {
			return true // later due times depend on how long it runs
		}
	}
}

// count adds the fires of a cohort.
func (l *outlook) count(c *cohort) {
	if l.looked > forecastLook {
		l.Left += len(c.defs)
		return
	}
	whole := l.each(c.defs[0], func(minute, n int) {
		l.Fires[minute] += n * len(c.defs)
		c.in[minute/64] |= 1 << (minute % 64)
		c.most = max(c.most, n)
	})
	if !whole {
		l.Left += len(c.defs)
	}
	if c.most > 0 {
		l.Jobs += len(c.defs)
	}
}

// crowd finds the crowded minutes, and the jobs that could move.
func (l *outlook) crowd() {
	sorted := slices.Sorted(slices.Values(l.Fires))
	l.Usual = sorted[len(sorted)/2]
	least := max(l.Usual*crowdFactor, l.Usual+crowdDistance)
	for minute, n := range l.Fires {
		if n >= least {
			l.Crowded = append(l.Crowded, Crowd{At: l.From.Add(time.Duration(minute) * time.Minute), Fires: n})
		}
	}
	slices.SortStableFunc(l.Crowded, func(a, b Crowd) int { return b.Fires - a.Fires })
	l.Crowded = l.Crowded[:min(len(l.Crowded), crowds)]
	l.plan = slices.Clone(l.Fires)
	moved := map[jobs.Key]Firing{}
	for i := range l.Crowded {
		l.name(&l.Crowded[i], least, moved)
	}
}

// name lists the jobs that fire in a crowded minute. A job gets one proposal, in whichever of its minutes.
func (l *outlook) name(c *Crowd, least int, moved map[jobs.Key]Firing) {
	minute, proposed := int(c.At.Sub(l.From)/time.Minute), 0
	for _, one := range l.cohorts {
		if !one.has(minute) {
			continue
		}
		for i, d := range one.defs {
			if len(c.Jobs) >= crowdNamed && (proposed >= crowdMoved || l.plan[minute] < least || l.tried >= crowdTried) {
				c.More += len(one.defs) - i
				break
			}
			p, known := moved[d.Key]
			if !known {
				p = Firing{Key: d.Key, Fires: one.most, Schedule: d.Policy.Schedule}
				if proposed < crowdMoved && l.plan[minute] >= least && l.tried < crowdTried && l.move(d, minute, &p) {
					moved[d.Key] = p
				}
			}
			if p.Instead != "" {
				proposed++
			}
			c.Jobs = append(c.Jobs, p)
		}
	}
	slices.SortStableFunc(c.Jobs, func(a, b Firing) int { return cmp.Compare(len(b.Instead), 0) - cmp.Compare(len(a.Instead), 0) })
	c.More += max(0, len(c.Jobs)-crowdNamed)
	c.Jobs = c.Jobs[:min(len(c.Jobs), crowdNamed)]
}

// move searches the minute of the hour with the fewest fires, and moves a job there.
func (l *outlook) move(d *kernel.Definition, crowded int, p *Firing) bool {
	l.tried++
	spread, others := schedule.Moves(d.Policy.Schedule)
	if spread == "" || d.Policy.Jitter != 0 || d.Policy.Early != 0 {
		return false
	}
	own := l.minutes(d)
	for _, m := range own {
		l.plan[m] -= p.Fires
	}
	var best []int
	for _, expr := range others {
		to := *d
		to.Policy.Schedule = expr
		at := l.minutes(&to)
		if len(at) != len(own) {
			continue // it would fire more often, or not at all, within the day
		}
		most := 0
		for _, m := range at {
			most = max(most, l.plan[m])
		}
		if p.Instead == "" || most+p.Fires < p.Then {
			p.Instead, p.Then, best = expr, most+p.Fires, at
		}
	}
	if p.Then*2 > l.plan[crowded]+p.Fires { // a move must be worth it
		p.Instead, p.Then, best = "", 0, own
	}
	for _, m := range best {
		l.plan[m] += p.Fires
	}
	if p.Instead == "" {
		return false
	}
	p.Spread = spread
	return true
}

func (l *outlook) minutes(d *kernel.Definition) (list []int) {
	l.each(d, func(minute, _ int) { list = append(list, minute) })
	return list
}
