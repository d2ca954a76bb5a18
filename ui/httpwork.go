package ui

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// httpWork is what an HTTP job calls, as its page shows it.
type httpWork struct {
	Calls []httpCall
	JSON  string
}

// httpCall is one line of it, with its places for values as they are written.
type httpCall struct {
	What        string // which one it is
	Method, URL string // "" = it is others who call
	Note        string
}

// httpWorkOf is nil for a job that calls nothing.
func httpWorkOf(raw json.RawMessage) *httpWork {
	if kernel.NoHTTP(raw) {
		return nil
	}
	w := &httpWork{JSON: pretty(raw)}
	plan, err := httpspec.Parse(raw)
	if err != nil { // it was checked when it was saved; an older version may have known better
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
