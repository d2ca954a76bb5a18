package bus

import (
	"encoding/json"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// What workers and leaders say to each other beside offers. JSON: these are few, and other languages will want
// to read them.

// WorkerInfo is who a worker is.
type WorkerInfo struct {
	Tenant  jobs.Tenant      `json:"tenant"`
	App     string           `json:"app"`
	Name    string           `json:"name"`  // unique per start: the configured name and a nonce
	Label   string           `json:"label"` // the configured name
	Host    string           `json:"host"`
	PID     int              `json:"pid"`
	Tags    []string         `json:"tags,omitempty"`
	Slots   int              `json:"slots"` // 0 = unlimited
	Keys    map[jobs.Key]int `json:"keys"`  // with their code versions
	Started time.Time        `json:"started"`
	Version string           `json:"version,omitempty"` // of the library
}

// Beat is what a worker says every few seconds: that it lives, and which attempts it holds.
type Beat struct {
	Worker   string      `json:"worker"`
	Info     *WorkerInfo `json:"info,omitempty"` // with the first beat, and when asked
	Running  []Held      `json:"running,omitempty"`
	More     bool        `json:"more,omitempty"` // further beats follow with other attempts
	Leaving  bool        `json:"leaving,omitempty"`
	Draining bool        `json:"draining,omitempty"`
}

// Held is an attempt that a worker holds.
type Held struct {
	ID       jobs.ID   `json:"id"`
	Attempt  uint32    `json:"n"`
	Stuck    bool      `json:"stuck,omitempty"` // told to stop, has not returned
	Progress *Progress `json:"progress,omitempty"`
}

// Progress is how far a run is.
type Progress struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total,omitempty"`
	Text  string `json:"text,omitempty"`
}

// BeatAnswer is what the leader answers.
type BeatAnswer struct {
	Queue   string `json:"queue,omitempty"`   // where the shared lane is; "" = none now, personal lane only
	Unknown bool   `json:"unknown,omitempty"` // send Info: this leader does not know you
	Stop    []Stop `json:"stop,omitempty"`    // attempts to end
	Lease   int64  `json:"lease"`             // milliseconds that the attempts are yours from when you sent the beat
}

// Stop tells a worker to end an attempt.
type Stop struct {
	ID      jobs.ID `json:"id"`
	Attempt uint32  `json:"n"`
	Stale   bool    `json:"stale,omitempty"` // the attempt is not yours any more: nothing you report of it counts
	Timeout bool    `json:"timeout,omitempty"`
	By      string  `json:"by,omitempty"`
	Reason  string  `json:"reason,omitempty"`
}

// Back returns offers that a worker has no slot for.
type Back struct {
	App    string  `json:"app"`
	Worker string  `json:"worker"`
	Offers []Offer `json:"offers"`
}

// Changes names what changed.
type Changes struct {
	Keys      []jobs.Key `json:"keys,omitempty"`
	Instances []jobs.ID  `json:"instances,omitempty"`
	Global    bool       `json:"global,omitempty"`
	Many      bool       `json:"many,omitempty"` // and more than can be named
}

// Encode writes one of the messages above.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types above can always be written
	}
	return b
}

// Decode reads one of the messages above.
func Decode[T any](b []byte) (T, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return v, jobs.Invalid("bus: message is not understood: %v", err)
	}
	return v, nil
}
