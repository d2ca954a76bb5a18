package ui

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// httpWork is the requests of an HTTP job on its page.
type httpWork struct {
	Calls []httpCall
	JSON  string
}

// httpCall is one request, with its templates.
type httpCall struct {
	What        string // its role in the job
	Method, URL string // "" = the service calls
	Note        string
}

// httpWorkOf returns nil for a job without requests.
func httpWorkOf(raw json.RawMessage) *httpWork {
	if kernel.NoWork(raw) {
		return nil
	}
	w := &httpWork{JSON: pretty(shownJob(raw))}
	plan, err := httpspec.Parse(raw)
	if err != nil { // it was checked when it was saved, perhaps by another version
		return w
	}
	add := func(what string, c *httpspec.Call, note string) {
		method := c.Method
		if method == "" {
			method = "GET"
		}
		w.Calls = append(w.Calls, httpCall{what, method, c.URL, note})
	}
	for i := range plan.Request {
		r, note := &plan.Request[i], ""
		if r.RespEnvName != "" {
			note = "response stored as ${" + r.RespEnvName + "}"
		}
		add("request "+strconv.Itoa(i+1), &r.Call, note)
	}
	switch {
	case plan.Async && plan.CheckURL != nil:
		add("check", plan.CheckURL, fmt.Sprintf("every %d s until the work is finished", max(1, plan.CheckRateSeconds)))
	case plan.Async:
		w.Calls = append(w.Calls, httpCall{What: "feedback", Note: "the service calls back when the work is finished"})
	}
	for i := range plan.Notification {
		n := &plan.Notification[i]
		note := "for every state"
		if n.StateEquals != "" {
			note = "for " + n.StateEquals
		}
		add("notification", &n.Call, note)
	}
	return w
}
