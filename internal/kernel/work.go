package kernel

import (
	"bytes"
	"encoding/json"
	"slices"
)

// The settings that define what a job does, in place of the code of a worker. At most one of them is set.
const (
	WorkHTTP = "http" // HTTP requests
	WorkExec = "exec" // a command
)

var workSettings = []string{WorkHTTP, WorkExec}

// WorkSettings returns the names of the settings that define what a job does, in place of the code of a worker.
func WorkSettings() []string { return slices.Clone(workSettings) }

// Work returns one of the settings that define what a job does; nil = it is not given.
func (s *Settings) Work(name string) *json.RawMessage {
	if name == WorkExec {
		return s.Exec
	}
	return s.HTTP
}

// givenWork returns the first of these settings that is given, also if it is empty; "" = none.
func (s *Settings) givenWork() string {
	i := slices.IndexFunc(workSettings, func(name string) bool { return s.Work(name) != nil })
	if i < 0 {
		return ""
	}
	return workSettings[i]
}

// Work returns the name of the setting that defines what the job does; "" = a worker has its code.
func (p *Policy) Work() string {
	switch {
	case !NoWork(p.HTTP):
		return WorkHTTP
	case !NoWork(p.Exec):
		return WorkExec
	}
	return ""
}

// NoWork reports whether a value of http or exec defines nothing: no bytes, or {}.
func NoWork(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || raw[0] == '{' && len(bytes.TrimSpace(raw[1:])) == 1
}
