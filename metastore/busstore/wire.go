package busstore

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// The form of requests and answers. A request begins with the version of this form and a verb. Commands follow after
// the moment at which their sender stops waiting, and answers to them after the server's (see deadline.go). Commands
// and rows are in the form of package jobs; reads, which are few, are JSON.

const version = 2

// verb is the kind of a request. The numbers are part of the wire format: add at the end.
type verb byte

const (
	askApply       verb = 1
	askDefinition  verb = 2
	askDefinitions verb = 3
	askRun         verb = 4
	askRuns        verb = 5
	askLedger      verb = 6
	askCounts      verb = 7
	askGlobal      verb = 8
	askToken       verb = 9
	askTokens      verb = 10
	askSession     verb = 11
	askAudits      verb = 12
	askHistory     verb = 13
	askCalendars   verb = 14
	askBrief       verb = 15 // askApply, answered with receipts
	askTenants     verb = 16
	askSessions    verb = 17

	askAlarmSettings verb = 18
	askAlarms        verb = 19
	askOccasions     verb = 20
	askBatches       verb = 21
)

var verbNames = [...]string{"", "apply", "definition", "definitions", "run", "runs", "ledger", "counts", "global",
	"token", "tokens", "session", "audits", "history", "calendars", "brief", "tenants", "sessions", "alarmsettings", "alarms", "occasions", "batches"}

func (v verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return "?"
}

// commands reports whether the request is a list of them.
func (v verb) commands() bool { return v == askApply || v == askBrief }

// question is the parameters of all reads; each uses its part.
type question struct {
	Tenant  jobs.Tenant     `json:"tenant,omitzero"`
	Key     jobs.Key        `json:"key,omitzero"`
	Keys    []jobs.Key      `json:"keys,omitzero"`
	App     string          `json:"app,omitzero"`
	Since   uint64          `json:"since,omitzero"`
	Changes bool            `json:"changes,omitzero"`
	After   jobs.Key        `json:"after,omitzero"`
	Skip    int             `json:"skip,omitzero"` // definitions that an earlier answer had
	Limit   int             `json:"limit,omitzero"`
	ID      jobs.ID         `json:"id,omitzero"`
	State   jobs.State      `json:"state,omitzero"`
	Worker  string          `json:"worker,omitzero"`
	Parent  jobs.ID         `json:"parent,omitzero"`
	Batch   jobs.ID         `json:"batch,omitzero"`
	Origin  kernel.Origin   `json:"origin,omitzero"`
	From    time.Time       `json:"from,omitzero"`
	To      time.Time       `json:"to,omitzero"`
	Cursor  string          `json:"cursor,omitzero"`
	Cause   kernel.Cause    `json:"cause,omitzero"`
	Code    string          `json:"code,omitzero"`
	Match   string          `json:"match,omitzero"`
	Args    []metastore.Arg `json:"args,omitzero"`
	Name    string          `json:"name,omitzero"` // the id of a token or a session, or a payer
	Target  string          `json:"target,omitzero"`
	Actor   string          `json:"actor,omitzero"`
	Before  uint64          `json:"before,omitzero"`
	Jobs    bool            `json:"jobs,omitzero"`
	Ended   bool            `json:"ended,omitzero"`
}

// Each query has a pair of functions: what a caller asks is what the store is asked. TestQuestionsAreWhole compares
// the fields.

func aboutDefinitions(q metastore.DefinitionQuery) question {
	return question{Tenant: q.Tenant, Keys: q.Keys, App: q.App, Since: q.Since, Changes: q.Changes, After: q.After, Limit: q.Limit}
}

func (q *question) definitions() metastore.DefinitionQuery {
	return metastore.DefinitionQuery{Tenant: q.Tenant, Keys: q.Keys, App: q.App, Since: q.Since, Changes: q.Changes, After: q.After,
		Limit: q.Limit}
}

func aboutRuns(q metastore.RunQuery) question {
	return question{Tenant: q.Tenant, Key: q.Job, State: q.State, Worker: q.Worker, Parent: q.Parent, Batch: q.Batch,
		Origin: q.Origin, Cause: q.Cause, Code: q.Code, App: q.App, Match: q.Match, Keys: q.Jobs, Args: q.Args, From: q.From,
		To: q.To, Ended: q.Ended, Cursor: q.Cursor, Limit: q.Limit}
}

func (q *question) runs() metastore.RunQuery {
	return metastore.RunQuery{Tenant: q.Tenant, Job: q.Key, State: q.State, Worker: q.Worker, Parent: q.Parent, Batch: q.Batch,
		Origin: q.Origin, Cause: q.Cause, Code: q.Code, App: q.App, Match: q.Match, Jobs: q.Keys, Args: q.Args, From: q.From,
		To: q.To, Ended: q.Ended, Cursor: q.Cursor, Limit: q.Limit}
}

func aboutCounts(q metastore.CountQuery) question {
	return question{Tenant: q.Tenant, Key: q.Job, App: q.App, Name: q.Payer, From: q.From, To: q.To, Jobs: q.Jobs}
}

func (q *question) counts() metastore.CountQuery {
	return metastore.CountQuery{Tenant: q.Tenant, Job: q.Key, App: q.App, Payer: q.Name, From: q.From, To: q.To, Jobs: q.Jobs}
}

func aboutBatches(q metastore.BatchQuery) question {
	return question{Tenant: q.Tenant, ID: q.ID, Limit: q.Limit}
}

func (q *question) batches() metastore.BatchQuery {
	return metastore.BatchQuery{Tenant: q.Tenant, ID: q.ID, Limit: q.Limit}
}

func aboutAlarms(q metastore.AlarmQuery) question {
	return question{Tenant: q.Tenant, Name: string(q.Which), Before: q.Before, Limit: q.Limit}
}

func (q *question) alarms() metastore.AlarmQuery {
	return metastore.AlarmQuery{Tenant: q.Tenant, Which: metastore.AlarmState(q.Name), Before: q.Before, Limit: q.Limit}
}

func aboutAudits(q metastore.AuditQuery) question {
	return question{Tenant: q.Tenant, Target: q.Target, Actor: q.Actor, Before: q.Before, Since: q.Since, Limit: q.Limit}
}

func (q *question) audits() metastore.AuditQuery {
	return metastore.AuditQuery{Tenant: q.Tenant, Target: q.Target, Actor: q.Actor, Before: q.Before, Since: q.Since, Limit: q.Limit}
}

// reply is what an answer to a question has beside its rows.
type reply struct {
	More     bool               `json:"more,omitzero"` // further rows did not fit: ask for those after
	Next     string             `json:"next,omitzero"`
	Searched time.Time          `json:"searched,omitzero"`
	Live     map[jobs.State]int `json:"live,omitzero"`
	Waiting  int                `json:"waiting,omitzero"`
	Jobs     int                `json:"jobs,omitzero"`
	Bytes    int64              `json:"bytes,omitzero"`
}

// appendApply leaves room for the moment, which is known when the request is sent.
func appendApply(b []byte, v verb, batch []kernel.Envelope) []byte {
	return kernel.AppendEnvelopes(append(append(b, version, byte(v)), make([]byte, deadlineBytes)...), batch)
}

func encodeQuestion(v verb, q question) []byte {
	body, err := json.Marshal(q)
	if err != nil {
		panic(err) // a question can always be written
	}
	return append([]byte{version, byte(v)}, body...)
}

func decodeQuestion(b []byte) (q question, err error) {
	if err := json.Unmarshal(b, &q); err != nil {
		return q, kernel.Invalid("busstore: invalid question: %v", err)
	}
	return q, nil
}

// opened returns the verb of a request and the rest of it.
func opened(request []byte) (verb, []byte, error) {
	switch {
	case len(request) < 2:
		return 0, nil, kernel.Invalid("busstore: request of %d bytes", len(request))
	case request[0] != version:
		return 0, nil, kernel.Invalid("busstore: request of version %d, this program reads version %d", request[0], version)
	}
	return verb(request[1]), request[2:], nil
}

// decodeCommands reads the deadline and the envelopes of a request, after a check of their number. From workers and
// clients it ignores fields that this program does not know; from a node it refuses them, because they would lose
// what a person requested.
func decodeCommands(b []byte, from bus.Role) (until deadline, batch []kernel.Envelope, err error) {
	if len(b) < deadlineBytes {
		return until, nil, kernel.Invalid("busstore: request of %d bytes", len(b))
	}
	until = deadlineOf(b)
	b = b[deadlineBytes:]
	_, skip := binary.Uvarint(b) // the version of their form
	if n, k := binary.Uvarint(b[max(0, skip):]); k > 0 && n > maxCommands {
		return until, nil, kernel.Invalid("busstore: %d commands in a request, at most %d are allowed", n, maxCommands)
	}
	decode := kernel.DecodeSentEnvelopes
	if from == bus.Node {
		decode = kernel.DecodeEnvelopes
	}
	batch, err = decode(b)
	return until, batch, err
}

// answersHead is the length of the head of answers to commands: the version, room for the server's moment, their
// number.
const answersHead = 1 + momentBytes + 4

// encodeAnswers writes as many of n answers as fit, in order: their number, then each. The first always fits: an
// effect that is too large by itself loses rows, which a caller can read. Likely is how long one may be.
func encodeAnswers(n, limit, likely int, answer func(i int) (*kernel.Effect, error)) []byte {
	b := make([]byte, answersHead, answersHead+min(likely*n, limit))
	b[0] = version
	written := 0
	for ; written < n; written++ {
		at := len(b)
		effect, err := answer(written)
		b = kernel.AppendAnswer(b, effect, err)
		if len(b) > limit && written == 0 && err == nil {
			b = kernel.AppendAnswer(b[:at], fitting(*effect, limit-at), nil)
		}
		if len(b) > limit {
			b = b[:at]
			break
		}
	}
	binary.LittleEndian.PutUint32(b[answersHead-4:], uint32(written))
	return b
}

// fitting is an effect without the rows that make it longer than limit. The run that the command was about is first,
// and fits in any message.
func fitting(e kernel.Effect, limit int) *kernel.Effect {
	for {
		switch {
		case len(kernel.AppendAnswer(nil, &e, nil)) <= limit:
			return &e
		case len(e.Missed) > 0:
			e.Missed = e.Missed[:len(e.Missed)/2]
		case len(e.Runs) > 1:
			e.Runs = e.Runs[:len(e.Runs)/2]
		case len(e.Definitions) > 1:
			e.Definitions = e.Definitions[:len(e.Definitions)/2]
		default:
			return &e
		}
	}
}

// decodeAnswers reads the answers to the first of asked commands, and the server's moment.
func decodeAnswers(b []byte, asked int) ([]metastore.Result, moment, error) {
	if len(b) < answersHead || b[0] != version {
		return nil, moment{}, kernel.Invalid("busstore: invalid answer of %d bytes", len(b))
	}
	now, n := momentOf(b[1:]), int(binary.LittleEndian.Uint32(b[answersHead-4:]))
	if n > asked {
		return nil, now, kernel.Invalid("busstore: %d answers to %d commands", n, asked)
	}
	results := make([]metastore.Result, n)
	b = b[answersHead:]
	for i := range results {
		var bad error
		if results[i].Effect, results[i].Err, b, bad = kernel.DecodeAnswer(b); bad != nil {
			return nil, now, bad
		}
	}
	if len(b) > 0 {
		return nil, now, kernel.Invalid("busstore: %d extra bytes after the answers", len(b))
	}
	return results, now, nil
}

// encodeRows writes a reply and as many of the rows as fit, and reports how many that were.
func encodeRows[R kernel.Row](r reply, rows []R, limit int) ([]byte, int) {
	head, err := json.Marshal(r)
	if err != nil {
		panic(err) // a reply can always be written
	}
	b := binary.AppendUvarint([]byte{version}, uint64(len(head)))
	b = append(b, head...)
	for i, row := range rows {
		at := len(b)
		if b = kernel.AppendRow(b, row); len(b) > limit {
			return b[:at], i
		}
	}
	return b, len(rows)
}

// decodeRows reads what encodeRows wrote. All rows are of kind R.
func decodeRows[R kernel.Row](b []byte) (r reply, rows []R, err error) {
	if len(b) < 2 || b[0] != version {
		return r, nil, kernel.Invalid("busstore: invalid answer of %d bytes", len(b))
	}
	n, k := binary.Uvarint(b[1:])
	if k <= 0 || n > uint64(len(b)-1-k) {
		return r, nil, kernel.Invalid("busstore: invalid answer: no head")
	}
	head := b[1+k : 1+k+int(n)]
	if err := json.Unmarshal(head, &r); err != nil {
		return r, nil, kernel.Invalid("busstore: invalid answer: %v", err)
	}
	for b = b[1+k+int(n):]; len(b) > 0; {
		var row kernel.Row
		if row, b, err = kernel.DecodeSentRow(b); err != nil {
			return r, nil, err
		}
		one, ok := row.(R)
		if !ok {
			return r, nil, kernel.Invalid("busstore: invalid answer: it has a row of another kind")
		}
		rows = append(rows, one)
	}
	return r, rows, nil
}
