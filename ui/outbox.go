package ui

import (
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// outboxPage lists requests from programs' transactions that were refused after the commit.
type outboxPage struct {
	visitor
	Rows []metastore.RefusedRequest
	More bool // there may be older ones
	Done string
}

func (u *UI) outbox(r *http.Request, v visitor) (answer, error) {
	list, err := u.ops.RefusedRequests(r.Context(), v.Who, metastore.MaxPage)
	if err != nil {
		return answer{}, err
	}
	p := outboxPage{visitor: v, Rows: list, More: len(list) == metastore.MaxPage}
	if n, err := strconv.Atoi(r.URL.Query().Get("n")); err == nil {
		switch r.URL.Query().Get("bulk") {
		case "retry":
			p.Done = result(n, "request is delivered again.", "requests are delivered again.") + " A request that is refused again returns to this list."
		case "discard":
			p.Done = result(n, "request was discarded.", "requests were discarded.")
		}
	}
	return answer{page: "outbox", title: "Refused requests", data: p}, nil
}

// changeRefused retries or discards the selected requests, and shows the list again with the result.
func (u *UI) changeRefused(r *http.Request, v visitor) (answer, error) {
	who, what := v.Who, r.PostFormValue("do")
	who.Reason = normal(r.PostFormValue("reason"))
	var numbers []int64
	for _, text := range r.PostForm["number"] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return answer{}, kernel.Invalid("invalid number %.40q of a request", text)
		}
		numbers = append(numbers, n)
	}
	change := u.ops.RetryRefused
	switch what {
	case "retry":
	case "discard":
		change = u.ops.DiscardRefused
	default:
		return answer{}, kernel.Invalid("invalid do %.20q: want retry or discard", what)
	}
	n, err := change(r.Context(), who, numbers)
	if err != nil {
		return answer{}, err
	}
	return answer{next: "/outbox?bulk=" + what + "&n=" + strconv.Itoa(n)}, nil
}
