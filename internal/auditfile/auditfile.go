// Package auditfile writes audits as lines of JSON and verifies such lines offline. It is not promised.
//
// Where to start: [Append] writes a line, [Verifier] reads them. docs/audit.md describes the form.
package auditfile

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Form is the version of the lines and of the encoding that their hashes are computed over.
const Form = 1

// line is an audit as a line of JSON. The order of the fields is part of the form.
type line struct {
	V      int             `json:"v"`
	Tenant jobs.Tenant     `json:"tenant"`
	N      uint64          `json:"n"`
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor,omitempty"`
	Reason string          `json:"reason,omitempty"`
	Verb   string          `json:"verb"`
	Target string          `json:"target"`
	From   string          `json:"from,omitempty"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	Prev   string          `json:"prev,omitempty"`
	Hash   string          `json:"hash"`
}

// Append appends an audit to b as a line of JSON, with a line feed.
func Append(b []byte, a *kernel.Audit) []byte {
	text, err := json.Marshal(line{V: Form, Tenant: a.Tenant, N: a.N, At: a.At.UTC(), Actor: a.Actor, Reason: a.Reason, Verb: a.Verb,
		Target: a.Target, From: a.From, Before: a.Before, After: a.After, Prev: hex.EncodeToString(a.Prev), Hash: hex.EncodeToString(a.Hash)})
	if err != nil {
		panic(err) // the store made Before and After by encoding/json
	}
	return append(append(b, text...), '\n')
}

// Gap is a line in the place of audits that were purged before the sink of the lines had received them. An audit of the
// verb "exported" confirms it.
type Gap struct {
	Sink string `json:"sink"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

type gapLine struct {
	V      int         `json:"v"`
	Tenant jobs.Tenant `json:"tenant"`
	Gap    *Gap        `json:"gap"`
}

// AppendGap appends a gap in a tenant's audits to b as a line of JSON, with a line feed.
func AppendGap(b []byte, tenant jobs.Tenant, g Gap) []byte {
	text, err := json.Marshal(gapLine{V: Form, Tenant: tenant, Gap: &g})
	if err != nil {
		panic(err) // it has text and numbers only
	}
	return append(append(b, text...), '\n')
}

// parseGap reads a line, without its line feed, if it is a gap.
func parseGap(b []byte) (tenant jobs.Tenant, g Gap, ok bool) {
	var l gapLine
	if err := json.Unmarshal(b, &l); err != nil || l.V != Form || l.Gap == nil || l.Gap.From == 0 || l.Gap.From > l.Gap.To {
		return "", Gap{}, false
	}
	again := AppendGap(nil, l.Tenant, *l.Gap)
	return l.Tenant, *l.Gap, bytes.Equal(again[:len(again)-1], b)
}

// Parse reads a line, without its line feed. Only what Append writes is accepted: a field that is repeated, added or
// spelled differently could show a reader something that the hash does not cover.
func Parse(b []byte) (*kernel.Audit, error) {
	var l line
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("not a line of an audit: %w", err)
	}
	if l.V != Form {
		return nil, fmt.Errorf("form %d: this program reads form %d", l.V, Form)
	}
	a := &kernel.Audit{Tenant: l.Tenant, N: l.N, At: l.At, Actor: l.Actor, Reason: l.Reason, Verb: l.Verb, Target: l.Target, From: l.From,
		Before: l.Before, After: l.After}
	var err error
	if a.Hash, err = hex.DecodeString(l.Hash); err != nil || len(a.Hash) != 32 {
		return nil, fmt.Errorf("invalid hash %.80q: want 64 hexadecimal digits", l.Hash)
	}
	if a.Prev, err = hex.DecodeString(l.Prev); err != nil || len(a.Prev) != 0 && len(a.Prev) != 32 {
		return nil, fmt.Errorf("invalid prev %.80q: want 64 hexadecimal digits", l.Prev)
	}
	if again := Append(nil, a); !bytes.Equal(again[:len(again)-1], b) {
		return nil, fmt.Errorf("not as Carillon writes it: fields, order and spelling must stay")
	}
	return a, nil
}
