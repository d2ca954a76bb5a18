package bus

import (
	"encoding/binary"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Push has a worker begin attempts that the leader has started. Package internal/dispatch has the rules; times are on
// the worker's steady clock.
type Push struct {
	Term    uint64        // of the leader
	Process int64         // of the worker: Heartbeat.Process
	Heard   time.Duration // Heartbeat.Sent of the last one that the leader has received
	Lease   time.Duration // how long an attempt is the worker's after each heartbeat
	Runs    []*kernel.Run // as kernel.DecodeStarted reads them
}

// PushAnswer is a worker's answer to a push. The attempts that it does not name begin now, or have begun.
type PushAnswer struct {
	Late    bool      `json:"late,omitempty"`    // the push is too old, or for another start: nothing is known of its attempts
	Refused []Attempt `json:"refused,omitempty"` // they never begin on this worker
	Over    []Attempt `json:"over,omitempty"`    // they had begun, and ended
}

// Attempt names an attempt.
type Attempt struct {
	ID jobs.ID `json:"id"`
	N  uint32  `json:"n"`
}

const pushVersion = 1

// Parcel is a push on the wire, and the runs in it.
type Parcel struct {
	Bytes []byte
	Runs  []*kernel.Run
}

// Pack writes a push in parcels of at most limit bytes. It returns the runs that are larger by themselves.
func (p *Push) Pack(limit int) (parcels []Parcel, large []*kernel.Run) {
	head := binary.AppendUvarint([]byte{pushVersion}, p.Term)
	head = binary.AppendVarint(head, p.Process)
	head = binary.AppendVarint(head, int64(p.Heard))
	head = binary.AppendVarint(head, int64(p.Lease))
	var now Parcel
	for _, run := range p.Runs {
		var last *kernel.Run
		if n := len(now.Runs); n > 0 {
			last = now.Runs[n-1]
		} else {
			now.Bytes = append(make([]byte, 0, len(head)+512), head...)
		}
		before := len(now.Bytes)
		now.Bytes = kernel.AppendStarted(now.Bytes, run, last)
		if len(now.Bytes) > limit && last != nil {
			now.Bytes = now.Bytes[:before]
			parcels = append(parcels, now)
			now = Parcel{Bytes: kernel.AppendStarted(append([]byte(nil), head...), run, nil)}
		}
		if len(now.Bytes) > limit {
			large, now = append(large, run), Parcel{}
			continue
		}
		now.Runs = append(now.Runs, run)
	}
	if len(now.Runs) > 0 {
		parcels = append(parcels, now)
	}
	return parcels, large
}

// DecodePush reads a push.
func DecodePush(b []byte) (p Push, err error) {
	if len(b) == 0 || b[0] != pushVersion {
		return p, kernel.Invalid("bus: a push of %d bytes, or of another version", len(b))
	}
	b = b[1:]
	term, n := binary.Uvarint(b)
	for _, v := range []*int64{&p.Process, (*int64)(&p.Heard), (*int64)(&p.Lease)} {
		if n <= 0 {
			return p, kernel.Invalid("bus: the head of a push is damaged")
		}
		b = b[n:]
		*v, n = binary.Varint(b)
	}
	if n <= 0 {
		return p, kernel.Invalid("bus: the head of a push is damaged")
	}
	p.Term, b = term, b[n:]
	var last *kernel.Run
	for len(b) > 0 {
		if last, b, err = kernel.DecodeStarted(b, last); err != nil {
			return p, err
		}
		p.Runs = append(p.Runs, last)
	}
	return p, nil
}
