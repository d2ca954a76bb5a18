package dispatch

import "time"

// patience is how long a push may be unanswered before its worker gets nothing more and it is sent again.
const patience = 250 * time.Millisecond

// Sender is a leader's end in one term: which attempts are whose, who may be sent more, and what is to be repeated. Its
// methods are not safe for concurrent use. All times are of the leader's steady clock.
type Sender struct {
	lease time.Duration
	sure  Stamp // when it was last confirmed that this leader leads
	seats map[Worker]*Seat
	runs  map[Run]*sent
	rules rules
}

// Seat is what a leader knows of a worker.
type Seat struct {
	credit
	lease   time.Duration
	heard   Stamp // on its clock: when it sent the last heartbeat that came
	heardAt Stamp
	silent  map[Run]*sent // attempts that it has not answered
}

// sent is an attempt that is a worker's.
type sent struct {
	n      uint32
	worker Worker
	phase  phase
	pushes int // by this leader
	pushed Stamp
	until  Stamp // of its lease
	began  bool  // by the worker's word
}

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
	Push    []Attempt // send to their workers, with Sender.Push
	Unstart []Attempt // commit: they never began
	Lapse   []Lapse   // commit: their leases have expired
	Stop    []Attempt // answer to the heartbeat: not that worker's any more
}

// Lapse is an attempt whose lease has expired.
type Lapse struct {
	Attempt
	Began bool // the worker had said so; if not, it uses up no retry
}

// NewSender returns the end of a leader whose term begins.
func NewSender(lease time.Duration, now Stamp) *Sender {
	return &Sender{lease: lease, sure: now, seats: map[Worker]*Seat{}, runs: map[Run]*sent{}}
}

// Confirm records that this leader has led at some time.
func (s *Sender) Confirm(at Stamp) { s.sure = max(s.sure, at) }

// leads reports whether it may push.
func (s *Sender) leads(now Stamp) bool { return s.rules.off(Sure) || now-s.sure < s.lease/3 }

// Load records an attempt that the rows had when the term began. Its lease begins anew, from the last moment at which
// the leader before may have renewed it.
func (s *Sender) Load(a Attempt, w Worker, now Stamp) {
	s.runs[a.Run] = &sent{n: a.N, worker: w, phase: loaded, until: now + s.lease}
	if !s.rules.off(Grant) {
		s.runs[a.Run].until += s.lease / 3
	}
	s.take(a.Run)
}

// Seat returns a worker's seat: the same until the worker leaves.
func (s *Sender) Seat(w Worker) *Seat {
	c := s.seats[w]
	if c == nil {
		c = &Seat{credit: credit{away: true}, lease: s.lease, silent: map[Run]*sent{}}
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
func (s *Sender) Propose(a Attempt, w Worker) {
	s.runs[a.Run] = &sent{n: a.N, worker: w, phase: proposed}
	if !s.rules.off(Reserve) {
		s.take(a.Run)
	}
}

func (s *Sender) take(run Run) {
	k := s.runs[run]
	c := s.Seat(k.worker)
	c.taken++
	c.open++
	c.silent[run] = k
}

// Started records that the start of an attempt is committed. It is pushed.
func (s *Sender) Started(a Attempt, now Stamp, acts *Acts) {
	k := s.find(a)
	if k == nil || k.phase != proposed {
		return
	}
	if s.rules.off(Reserve) {
		s.take(a.Run)
	}
	k.phase, k.until = started, now+s.lease
	s.push(a, k, now, acts)
}

// Current returns the attempt of a run that is a worker's, or whose start is proposed.
func (s *Sender) Current(run Run) (a Attempt, w Worker, known bool) {
	k := s.runs[run]
	if k == nil {
		return Attempt{}, Worker{}, false
	}
	return Attempt{run, k.n}, k.worker, true
}

// Proposed reports whether the start of an attempt is on its way to the log.
func (s *Sender) Proposed(a Attempt) bool {
	k := s.find(a)
	return k != nil && k.phase == proposed
}

// Unconfirmed reports whether the worker of an attempt has not said yet that it began.
func (s *Sender) Unconfirmed(a Attempt) bool {
	k := s.find(a)
	return k != nil && !k.began && k.phase != over
}

// Rest has a worker take nothing new, or take runs again, until its next heartbeat decides.
func (s *Sender) Rest(w Worker, on bool) { s.Seat(w).away = on }

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

func (s *Sender) find(a Attempt) *sent {
	if k := s.runs[a.Run]; k != nil && k.n == a.N {
		return k
	}
	return nil
}

// push sends an attempt, for the first time or again, if its worker can still accept it.
func (s *Sender) push(a Attempt, k *sent, now Stamp, acts *Acts) {
	c := s.seats[k.worker]
	if !s.leads(now) || !c.present(now) {
		return
	}
	k.pushes++
	k.pushed = now
	if !s.rules.off(Renew) {
		k.until = now + s.lease
	}
	acts.Push = append(acts.Push, a)
}

// Push returns the head of a push to a worker.
func (s *Sender) Push(w Worker) Push {
	return Push{Heard: s.seats[w].heard, Lease: s.lease}
}

// Answer handles a worker's verdict.
func (s *Sender) Answer(a Attempt, w Worker, v Verdict, acts *Acts) {
	k := s.find(a)
	if k == nil || k.worker != w || k.phase == over || k.phase == undone {
		return
	}
	s.spoke(a.Run, k)
	switch v {
	case Began, Over:
		k.began = true
	case Refused:
		if k.began {
			return
		}
		k.phase = undone
		s.seats[w].closed = true
		if !s.rules.off(Unstart) {
			acts.Unstart = append(acts.Unstart, a)
		}
	}
}

// spoke ends the wait for an answer.
func (s *Sender) spoke(run Run, k *sent) {
	if c := s.seats[k.worker]; c.silent[run] == k {
		delete(c.silent, run)
		c.answered(1)
	}
}

// Undelivered handles the bus's proof that no process received the last push of an attempt.
func (s *Sender) Undelivered(a Attempt, acts *Acts) {
	k := s.find(a)
	if k == nil || k.phase == over || k.phase == undone || k.began {
		return
	}
	s.seats[k.worker].closed, s.seats[k.worker].mute = true, true
	if k.phase == started && k.pushes == 1 || s.rules.off(FirstOnly) {
		s.spoke(a.Run, k)
		k.phase = undone
		acts.Unstart = append(acts.Unstart, a)
	}
}

// Ended records that the rows have an attempt no longer: its slot is free.
func (s *Sender) Ended(a Attempt) {
	k := s.find(a)
	if k == nil {
		return
	}
	s.spoke(a.Run, k)
	if k.phase != proposed || !s.rules.off(Reserve) {
		s.seats[k.worker].taken--
	}
	delete(s.runs, a.Run)
}

// Lingers records that an attempt has ended and its handler has not returned.
func (s *Sender) Lingers(a Attempt) {
	if k := s.find(a); k != nil {
		s.spoke(a.Run, k)
		k.phase = over
	}
}

// Heartbeat is what a worker reports.
type Heartbeat struct {
	Worker Worker
	Sent   Stamp // on its clock
	Slots  int   // 0 = unlimited
	Strays int   // slots that other attempts take than those it names
	Away   bool  // it takes nothing new
	More   bool  // more heartbeats of the same time follow, with the other names
	Names  []Attempt
}

// Heartbeat renews what a worker names, and finds what it has not received.
func (s *Sender) Heartbeat(h Heartbeat, now Stamp, acts *Acts) {
	c := s.Seat(h.Worker)
	if h.Sent < c.heard {
		return // overtaken by a newer one
	}
	c.heard, c.heardAt = h.Sent, now
	if !h.More {
		c.introduced(h.Slots, h.Strays, h.Away)
	}
	for _, a := range h.Names {
		k := s.find(a)
		if k == nil || k.worker != h.Worker || k.phase == undone {
			acts.Stop = append(acts.Stop, a)
			continue
		}
		if k.phase == proposed {
			continue // of a start that this leader does not know to be committed yet
		}
		s.spoke(a.Run, k)
		k.until, k.began = now+s.lease, true
	}
	if h.More || s.rules.off(Repeat) {
		return
	}
	for run, k := range c.silent {
		if (k.phase == started || k.phase == loaded) && now-k.pushed >= patience {
			s.push(Attempt{run, k.n}, k, now, acts)
		}
	}
}

// Tick repeats pushes that are unanswered for long. Their workers get nothing more until their next heartbeats.
func (s *Sender) Tick(now Stamp, acts *Acts) {
	for _, c := range s.seats {
		for run, k := range c.silent {
			if k.phase != started || now-k.pushed < patience {
				continue
			}
			c.closed, c.mute = true, true
			if !s.rules.off(Repeat) {
				s.push(Attempt{run, k.n}, k, now, acts)
			}
		}
	}
}

// Lapsed finds leases that have expired, and repeats to unstart what was refused until the rows have that.
func (s *Sender) Lapsed(now Stamp, acts *Acts) {
	for run, k := range s.runs {
		a := Attempt{run, k.n}
		switch {
		case k.phase == proposed:
		case k.phase == undone:
			if !s.rules.off(Unstart) {
				acts.Unstart = append(acts.Unstart, a)
			}
		case now > k.until:
			acts.Lapse = append(acts.Lapse, Lapse{a, k.began})
		}
	}
}
