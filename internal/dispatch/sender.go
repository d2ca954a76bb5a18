package dispatch

import "time"

// patience is how long a push may be unanswered before its worker gets nothing more and it is sent again. Each further
// repeat takes twice as long, up to mostPatience.
const (
	patience     = 250 * time.Millisecond
	mostPatience = 4 * time.Second
)

// Sender is a leader's end in one term: which attempts are whose, who may be sent more, and what is to be repeated. Its
// methods are not safe for concurrent use. All times are of the leader's steady clock.
type Sender struct {
	lease time.Duration
	sure  Stamp // when it was last confirmed that this leader leads
	seats map[Worker]*Seat
	runs  map[Run]*Sent
	rules rules
}

// Seat is what a leader knows of a worker.
type Seat struct {
	credit
	worker  Worker
	lease   time.Duration
	process int64 // of the process that sends its heartbeats
	heard   Stamp // on its clock: when it sent the last heartbeat that came
	heardAt Stamp
	silent  []*Sent // attempts that it has not answered
}

// Sent is an attempt that is a worker's, or whose start is proposed. Steps take it, so that one lookup by Find or
// Current is enough for all steps of an event. Ended makes it invalid.
type Sent struct {
	Attempt
	Kept    any    // what the caller keeps with it
	Version uint64 // of its run's row, as the caller knows it
	seat    *Seat
	phase   phase
	pushes  int // by this leader
	pushed  Stamp
	process int64 // of the process that it was pushed to; 0 = none
	until   Stamp // of its lease
	began   bool  // by the worker's word
	place   int   // in the seat's silent, from 1; 0 = it is answered
	heard   bool  // its worker has answered or named it
	open    Stamp // until then, its worker may accept a push of it; 0 = there was none
}

// Over reports whether the attempt has ended, and its handler has not returned.
func (k *Sent) Over() bool { return k.phase == over }

// Worker returns the worker that has it.
func (k *Sent) Worker() Worker { return k.seat.worker }

// Proposed reports whether its start is on its way to the log.
func (k *Sent) Proposed() bool { return k.phase == proposed }

type phase uint8

const (
	proposed phase = iota // its start is not committed yet
	started               // pushed, or to be pushed
	loaded                // by an earlier leader: whether it was pushed is unknown
	undone                // refused: to be unstarted
	over                  // ended; its handler has not returned
)

// Acts is what a step asks for. Steps append to it.
type Acts struct {
	Push    []*Sent   // send to their workers, with Sender.Push
	Unstart []Attempt // commit: they never began
	Lapse   []Lapse   // commit: their leases have expired
	Stop    []Attempt // answer to the heartbeat: not that worker's any more
	Unknown []Attempt // named by the heartbeat, and not known here: the rows decide
}

// Lapse is an attempt whose lease has expired.
type Lapse struct {
	Attempt
	Began bool // the worker had said so; if not, it uses up no retry
}

// NewSender returns the end of a leader whose term begins.
func NewSender(lease time.Duration, now Stamp) *Sender {
	return &Sender{rules: sabotaged(), lease: lease, sure: now, seats: map[Worker]*Seat{}, runs: map[Run]*Sent{}}
}

// Confirm records that this leader has led at some time.
func (s *Sender) Confirm(at Stamp) { s.sure = max(s.sure, at) }

// leads reports whether it may push.
func (s *Sender) leads(now Stamp) bool { return s.rules.off(Sure) || now-s.sure < s.lease/3 }

// Load records an attempt that the rows had when the term began. Its lease begins anew, from the last moment at which
// the leader before may have renewed it.
func (s *Sender) Load(a Attempt, w Worker, now Stamp) *Sent {
	k := s.add(a, w, loaded)
	k.until = now + s.lease
	if !s.rules.off(Grant) {
		k.until += s.lease / 3
	}
	k.open = now + s.lease // the leader before may have pushed it for another third of a lease
	k.take()
	return k
}

func (s *Sender) add(a Attempt, w Worker, p phase) *Sent {
	k := &Sent{Attempt: a, seat: s.Seat(w), phase: p}
	s.runs[a.Run] = k
	return k
}

// Seat returns a worker's seat: the same until the worker leaves.
func (s *Sender) Seat(w Worker) *Seat {
	c := s.seats[w]
	if c == nil {
		c = &Seat{credit: credit{away: true}, worker: w, lease: s.lease}
		s.seats[w] = c
	}
	return c
}

// Credit returns how many more attempts the worker may be sent.
func (c *Seat) Credit(now Stamp) int {
	if c.present(now) {
		return c.left()
	}
	return 0
}

// present reports whether the worker can still accept a push.
func (c *Seat) present(now Stamp) bool { return now-c.heardAt <= c.lease*2/3 }

// Reachable reports whether the worker has answered its pushes and sent a heartbeat lately.
func (c *Seat) Reachable(now Stamp) bool { return !c.mute && c.present(now) }

// Silent reports whether the worker has sent no heartbeat for a lease.
func (c *Seat) Silent(now Stamp) bool { return now-c.heardAt > c.lease }

// Propose records that the start of an attempt is on its way to the log.
func (s *Sender) Propose(a Attempt, w Worker) *Sent {
	k := s.add(a, w, proposed)
	if !s.rules.off(Reserve) {
		k.take()
	}
	return k
}

// take takes a slot, and waits for an answer.
func (k *Sent) take() {
	c := k.seat
	c.taken++
	c.open++
	c.silent = append(c.silent, k)
	k.place = len(c.silent)
}

// Started records that the start of an attempt is committed. It is pushed.
func (s *Sender) Started(k *Sent, now Stamp, acts *Acts) {
	if k.phase != proposed {
		return
	}
	if s.rules.off(Reserve) {
		k.take()
	}
	k.phase, k.until = started, now+s.lease
	s.push(k, now, acts)
}

// Current returns a run's attempt that is a worker's, or whose start is proposed; nil = there is none.
func (s *Sender) Current(run Run) *Sent { return s.runs[run] }

// Find returns an attempt if it is its run's current one, or nil.
func (s *Sender) Find(a Attempt) *Sent {
	if k := s.runs[a.Run]; k != nil && k.N == a.N {
		return k
	}
	return nil
}

// All yields the current attempts of all runs.
func (s *Sender) All(yield func(*Sent) bool) {
	for _, k := range s.runs {
		if !yield(k) {
			return
		}
	}
}

// Rest has a worker take nothing new, until its next heartbeat decides.
func (s *Sender) Rest(w Worker) { s.Seat(w).away = true }

// Leave has a worker take nothing new, and forgets it if no attempt is its own. It reports whether it has.
func (s *Sender) Leave(w Worker) bool {
	c := s.seats[w]
	if c != nil && (c.taken > 0 || len(c.silent) > 0) {
		c.away = true
		return false
	}
	delete(s.seats, w)
	return true
}

// push sends an attempt, for the first time or again, if its worker can still accept it.
func (s *Sender) push(k *Sent, now Stamp, acts *Acts) {
	c := k.seat
	if !s.leads(now) || !c.present(now) || c.other(k) {
		return
	}
	k.pushes++
	k.pushed, k.process, k.open = now, c.process, c.heardAt+s.lease*2/3
	if !s.rules.off(Renew) {
		k.until = now + s.lease
	}
	acts.Push = append(acts.Push, k)
}

// other reports whether another process than the one that acts for the worker may have accepted an attempt. Both would
// begin it. If neither names it in a heartbeat, its lease expires.
func (c *Seat) other(k *Sent) bool { return k.process != 0 && k.process != c.process }

// Push returns the head of a push to a worker.
func (s *Sender) Push(w Worker) Push {
	c := s.Seat(w)
	return Push{Process: c.process, Heard: c.heard, Lease: s.lease}
}

// Answer handles a worker's verdict.
func (s *Sender) Answer(k *Sent, w Worker, v Verdict, acts *Acts) {
	if k.Worker() != w {
		return
	}
	if k.heard = true; k.phase == over || k.phase == undone {
		return
	}
	k.spoke()
	switch v {
	case Began, Over:
		k.began = true
	case Refused:
		if k.began {
			return
		}
		k.phase = undone
		k.seat.closed = true
		if !s.rules.off(Unstart) {
			acts.Unstart = append(acts.Unstart, k.Attempt)
		}
	}
}

// spoke ends the wait for an answer.
func (k *Sent) spoke() {
	if k.place == 0 {
		return
	}
	c := k.seat
	n := len(c.silent) - 1
	last := c.silent[n]
	c.silent[k.place-1], last.place = last, k.place
	c.silent[n], k.place = nil, 0
	c.silent = c.silent[:n]
	c.answered(1)
}

// Undelivered handles the bus's proof that no process received the last push of an attempt.
func (s *Sender) Undelivered(k *Sent, acts *Acts) {
	if k.phase == over || k.phase == undone || k.began {
		return
	}
	k.seat.closed, k.seat.mute = true, true
	if k.phase == started && k.pushes == 1 || s.rules.off(FirstOnly) {
		k.spoke()
		k.phase = undone
		acts.Unstart = append(acts.Unstart, k.Attempt)
	}
}

// Ended records that the rows have an attempt no longer: its slot is free.
func (s *Sender) Ended(k *Sent) {
	k.spoke()
	if k.phase != proposed || !s.rules.off(Reserve) {
		k.seat.taken--
	}
	delete(s.runs, k.Run)
}

// MayBegin returns until when an attempt may begin without its worker having said so; 0 = it never does, or has begun by
// its worker's word.
func (s *Sender) MayBegin(k *Sent, now Stamp) (until Stamp) {
	if k.heard || now >= k.open || s.rules.off(Certain) {
		return 0
	}
	return k.open
}

// Lingers records that an attempt has ended and its handler has not returned.
func (s *Sender) Lingers(k *Sent) {
	k.spoke()
	k.phase = over
}

// Heartbeat is what a worker reports.
type Heartbeat struct {
	Worker  Worker
	Process int64 // of the process that sends it
	Sent    Stamp // on its clock
	Slots   int   // 0 = unlimited
	Strays  int   // slots that other attempts take than those it names
	Away    bool  // it takes nothing new
	More    bool  // more heartbeats of the same time follow, with the other names
	Names   []Attempt
}

// Heartbeat renews what a worker names, and finds what it has not received.
func (s *Sender) Heartbeat(h Heartbeat, now Stamp, acts *Acts) {
	c := s.Seat(h.Worker)
	if h.Process != c.process {
		c.process, c.heard = h.Process, 0 // another process acts for it, with another clock
	}
	if h.Sent < c.heard {
		return // overtaken by a newer one
	}
	c.heard, c.heardAt = h.Sent, now
	if !h.More {
		c.introduced(h.Slots, h.Strays, h.Away)
	}
	for _, a := range h.Names {
		k := s.runs[a.Run]
		switch {
		case k == nil || k.N < a.N:
			acts.Unknown = append(acts.Unknown, a)
			continue
		case k.N > a.N || k.seat != c || k.phase == undone:
			acts.Stop = append(acts.Stop, a)
			continue
		}
		if k.phase == proposed {
			continue // of a start that this leader does not know to be committed yet
		}
		k.spoke()
		k.until, k.began, k.heard = now+s.lease, true, true
	}
	if h.More || s.rules.off(Repeat) {
		return
	}
	for _, k := range c.silent {
		if (k.phase == started || k.phase == loaded) && now-k.pushed >= patience {
			s.push(k, now, acts)
		}
	}
}

// Tick repeats pushes that are unanswered for long. Their workers get nothing more until their next heartbeats.
func (s *Sender) Tick(now Stamp, acts *Acts) {
	for _, c := range s.seats {
		for _, k := range c.silent {
			if k.phase != started || c.other(k) || now-k.pushed < min(patience<<min(max(0, k.pushes-1), 8), mostPatience) {
				continue
			}
			c.closed, c.mute = true, true
			if !s.rules.off(Repeat) {
				s.push(k, now, acts)
			}
		}
	}
}

// Waits reports whether a worker is to answer.
func (s *Sender) Waits() bool {
	for _, c := range s.seats {
		if len(c.silent) > 0 {
			return true
		}
	}
	return false
}

// Lapsed finds leases that have expired, and repeats to unstart what was refused until the rows have that.
func (s *Sender) Lapsed(now Stamp, acts *Acts) {
	for _, k := range s.runs {
		switch {
		case k.phase == proposed:
		case k.phase == undone:
			if !s.rules.off(Unstart) {
				acts.Unstart = append(acts.Unstart, k.Attempt)
			}
		case now > k.until:
			acts.Lapse = append(acts.Lapse, Lapse{k.Attempt, k.began})
		}
	}
}
