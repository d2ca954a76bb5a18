package schedule

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// InMinute returns how many due times are in the minute of a due time, from that one on: 1 for most schedules, 60 for
// one of every second.
func (s *Schedule) InMinute(due time.Time) int {
	end := due.Truncate(time.Minute).Add(time.Minute)
	if s.spec.End.IsZero() || !s.spec.End.Before(end) {
		switch r := s.rule.(type) {
		case *cron:
			if r.policies.flowing { // others may come together after a gap
				return bits.OnesCount64(r.seconds >> uint(due.Second()))
			}
		case every:
			if r.times() == 0 {
				return int((end.Sub(due)-1)/(time.Duration(r.seconds)*time.Second)) + 1
			}
		}
	}
	n := 1
	for at, ok := s.Next(due); ok && at.Before(end); at, ok = s.Next(at) {
		n++
	}
	return n
}

// SameForAll reports whether an expression has the same due times for all jobs. Cron without H does; intervals count
// from the start of each job.
func SameForAll(expr string) bool {
	text := strings.TrimSpace(expr)
	if _, is := macros[strings.ToLower(text)]; is {
		return true
	}
	return len(strings.Fields(text)) >= 5 && !strings.Contains(text, "H") && !strings.HasSuffix(text, "after end")
}

// Moves returns alternatives at other minutes to a schedule whose minutes are one number or a step over the whole hour.
// spread has H as its minutes, so that the job's key selects them; others are all alternatives with numbers, starting
// after the current one. Schedules of other forms have none.
func Moves(expr string) (spread string, others []string) {
	text := strings.TrimSpace(expr)
	if expansion, is := macros[strings.ToLower(text)]; is {
		text = expansion
	}
	fields := strings.Fields(text)
	if len(fields) < 5 || len(fields) > 7 || strings.HasPrefix(text, "@") {
		return "", nil
	}
	at := 0
	if len(fields) > 5 {
		at = 1
	}
	with := func(minute string) string {
		fields[at] = minute
		return strings.Join(fields, " ")
	}
	const hour = 60
	start, step, stepped := strings.Cut(fields[at], "/")
	if !stepped {
		n, err := strconv.Atoi(start)
		if err != nil || n < 0 || n >= hour {
			return "", nil
		}
		spread = with("H")
		for k := 1; k < hour; k++ {
			others = append(others, with(strconv.Itoa((n+k)%hour)))
		}
		return spread, others
	}
	n, err := strconv.Atoi(step)
	if err != nil || n < 2 || n >= hour || hour%n != 0 || start != "*" && start != "0" {
		return "", nil
	}
	spread = with("H/" + step)
	for k := 1; k < n; k++ {
		others = append(others, with(strconv.Itoa(k)+"-59/"+step))
	}
	return spread, others
}
