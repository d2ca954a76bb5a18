package bus

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Messages between workers and leaders beside pushes. JSON: these are few.

// MostJobs is how many jobs one worker may have.
const MostJobs = 10_000

// WorkerInfo describes a worker.
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
	// Faults are the jobs that it should have and does not serve, with the reasons.
	Faults map[jobs.Key]string `json:"faults,omitempty"`
	// Any means that it also serves every job of its app that no other worker has by name; Only, that of these it serves
	// only those with this setting: http or exec.
	Any  bool   `json:"any,omitempty"`
	Only string `json:"only,omitempty"`
}

// Serves reports whether a worker has the code of a job.
func (i *WorkerInfo) Serves(d *kernel.Definition) bool {
	return i.Lacks(d.HandlerKey(), d.Policy.Work(), nil) == ""
}

// Lacks returns what a worker lacks for a run of a handler, or of work (kernel.Run.Work), in short ("the tag gpu"), or
// "". It ignores which worker the run is for, and whether it has room.
func (i *WorkerInfo) Lacks(handler jobs.Key, work string, p *kernel.Place) string {
	version, has := i.Keys[handler]
	switch {
	case !has && !(i.Any && (i.Only == "" || i.Only == work)):
		return "the job"
	case p == nil:
		return ""
	case has && version < p.Version:
		return fmt.Sprintf("version %d of the job", p.Version)
	}
	for _, tag := range p.Needs {
		if !slices.Contains(i.Tags, tag) {
			return "the tag " + tag
		}
	}
	return ""
}

// Heartbeat is what a worker sends every few seconds: that it lives, and which attempts it holds.
type Heartbeat struct {
	Worker   string      `json:"worker"`
	Process  int64       `json:"process"`        // differs for each start of the process that sends for the worker
	Sent     int64       `json:"sent"`           // when it was sent, on the worker's steady clock; nanoseconds
	Info     *WorkerInfo `json:"info,omitempty"` // with the first heartbeat, and when asked
	Running  []Held      `json:"running,omitempty"`
	Strays   int         `json:"strays,omitempty"` // slots that handlers take whose attempts are not the worker's any more
	Slots    int         `json:"slots,omitempty"`  // of an HTTP worker: how many runs it has asked for, with those that it has
	More     bool        `json:"more,omitempty"`   // further heartbeats follow with other attempts
	Leaving  bool        `json:"leaving,omitempty"`
	Draining bool        `json:"draining,omitempty"`
	Resting  bool        `json:"resting,omitempty"` // it was asked to take nothing new; it stays alive
	Away     bool        `json:"away,omitempty"`    // of an HTTP worker: it has not asked for runs lately
}

// Held is an attempt that a worker holds.
type Held struct {
	ID       jobs.ID   `json:"id"`
	Attempt  uint32    `json:"n"`
	Stuck    bool      `json:"stuck,omitempty"` // stopped, has not returned
	Progress *Progress `json:"progress,omitempty"`
}

// Progress is the progress of a run.
type Progress struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total,omitempty"`
	Text  string `json:"text,omitempty"`
}

// HeartbeatAnswer is the leader's answer to a heartbeat.
type HeartbeatAnswer struct {
	Unknown bool   `json:"unknown,omitempty"` // send Info: this leader does not know you
	Stop    []Stop `json:"stop,omitempty"`    // attempts to end
	Rest    Rest   `json:"rest,omitempty"`    // take nothing new, or take runs again; "" = as you are
	Lease   int64  `json:"lease"`             // milliseconds that the attempts are yours from when you sent the heartbeat
}

// Rest asks a worker to drain or to resume.
type Rest string

// The requests about new runs.
const (
	RestDrain  Rest = "drain"  // take nothing new, finish what runs, and stay
	RestResume Rest = "resume" // take runs again
)

// Stop asks a worker to end an attempt.
type Stop struct {
	ID      jobs.ID `json:"id"`
	Attempt uint32  `json:"n"`
	Started int64   `json:"started,omitempty"` // when the store started the attempt, in Unix nanoseconds; 0 = the worker has named it
	Stale   bool    `json:"stale,omitempty"`   // the attempt is not yours any more: your reports of it are ignored
	Term    uint64  `json:"term,omitempty"`    // not about an attempt: the leader of this term asks for a heartbeat
	Timeout bool    `json:"timeout,omitempty"`
	Rest    Rest    `json:"rest,omitempty"` // not about an attempt, but about the worker
	By      string  `json:"by,omitempty"`
	Reason  string  `json:"reason,omitempty"`
}

// NodeHeartbeat is what a control plane sends the others every few seconds, and when it begins or ends to lead.
type NodeHeartbeat struct {
	Name    string    `json:"name"`
	Nonce   string    `json:"nonce"` // of this start
	Address string    `json:"address,omitempty"`
	Route   string    `json:"route,omitempty"` // host:port where NATS servers of other nodes reach the one in its process
	Version string    `json:"version,omitempty"`
	Up      int64     `json:"up"`             // milliseconds since it started, of steady time
	Clock   time.Time `json:"at"`             // its clock when it sent this
	Step    int64     `json:"step"`           // milliseconds that its clock was set by, and that it does not follow yet
	Term    uint64    `json:"term,omitempty"` // that it leads; 0 = it does not
	Since   time.Time `json:"since,omitzero"` // since when it leads
	Leaving bool      `json:"leaving,omitempty"`
	NATS    string    `json:"nats,omitempty"`  // the state of its end of the bus, as text
	Terms   []Term    `json:"terms,omitempty"` // the last terms, as it knows them; only in an answer
}

// Term is a term in which a node led.
type Term struct {
	Node  string    `json:"node"`
	Term  uint64    `json:"term"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	Why   string    `json:"why,omitempty"` // why it ended
}

// Changes names what changed.
type Changes struct {
	Keys   []jobs.Key `json:"keys,omitempty"`
	Runs   []jobs.ID  `json:"runs,omitempty"`
	Global bool       `json:"global,omitempty"`
	Many   bool       `json:"many,omitempty"` // and more than can be named
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
		return v, kernel.Invalid("bus: invalid message: %v", err)
	}
	return v, nil
}
