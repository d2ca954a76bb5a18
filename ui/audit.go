package ui

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// auditPage is the audit, newest first.
type auditPage struct {
	visitor
	Target, Actor string
	Rows          []auditRow
	Older, Newest string // paths, or ""
}

// auditRow is a change.
type auditRow struct {
	*kernel.Audit
	Name    string // the actor's name
	Job     jobs.Key
	Run, Of string // a run and its job, or ""
	Changes []change
}

// change is one field before and after.
type change struct{ Field, Before, After string }

const auditRows = 50

func (u *UI) audit(r *http.Request, v visitor) (answer, error) {
	q := r.URL.Query()
	p := auditPage{visitor: v, Target: strings.TrimSpace(q.Get("target")), Actor: strings.TrimSpace(q.Get("actor"))}
	before, _ := strconv.ParseUint(q.Get("before"), 10, 64)
	list, err := u.ops.Audits(r.Context(), v.Who, metastore.AuditQuery{Target: p.Target, Actor: p.Actor, Before: before, Limit: auditRows + 1})
	if err != nil {
		return answer{}, err
	}
	if len(list) > auditRows {
		list = list[:auditRows]
		p.Older = p.at(list[auditRows-1].N)
	}
	if before > 0 {
		p.Newest = p.at(0)
	}
	for _, a := range list {
		row := auditRow{Audit: a, Name: strings.TrimPrefix(a.Actor, "person:"), Changes: changes(a.Before, a.After)}
		if key, ok := strings.CutPrefix(a.Target, "job "); ok {
			row.Job = jobs.Key(key)
		}
		if rest, ok := strings.CutPrefix(a.Target, "run "); ok {
			row.Run, row.Of, _ = strings.Cut(rest, " of ")
		}
		p.Rows = append(p.Rows, row)
	}
	return answer{page: "audit", title: "Audit", data: p}, nil
}

func (p *auditPage) at(before uint64) string {
	v := url.Values{}
	for name, text := range map[string]string{"target": p.Target, "actor": p.Actor} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if before > 0 {
		v.Set("before", strconv.FormatUint(before, 10))
	}
	if len(v) == 0 {
		return "/audit"
	}
	return "/audit?" + v.Encode()
}

// changes returns the fields in which two JSON objects differ, by name.
func changes(before, after []byte) []change {
	read := func(b []byte) map[string]json.RawMessage {
		var fields map[string]json.RawMessage
		if len(b) > 0 && json.Unmarshal(b, &fields) != nil {
			return map[string]json.RawMessage{"": b} // not an object: unchanged
		}
		return fields
	}
	was, is := read(before), read(after)
	names := maps.Clone(was)
	if names == nil {
		names = map[string]json.RawMessage{}
	}
	maps.Copy(names, is)
	var list []change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(was[name], is[name]) {
			before, after := was[name], is[name]
			if name == "http" {
				before, after = shownJob(before), shownJob(after)
			}
			list = append(list, change{name, bare(before), bare(after)})
		}
	}
	return list
}

// bare returns a JSON value for reading: a string without its quotes.
func bare(b json.RawMessage) string {
	var s string
	if json.Unmarshal(b, &s) == nil {
		return s
	}
	return string(b)
}
