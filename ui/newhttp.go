package ui

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/carillon-scheduler/carillon/ops"
)

// newHTTPForm is the form of a new job of HTTP requests.
type newHTTPForm struct {
	newForm
	Form *requestsForm
	raw  json.RawMessage // what the form says
}

func newHTTPFormOf(r *http.Request, v visitor) *newHTTPForm {
	f := &newHTTPForm{newForm: newForm{visitor: v, App: "http", Timeout: "60s", Retries: "2"}, Form: newRequestsForm()}
	if r.Method == http.MethodPost {
		f.read(r, nil)
		f.Form = sentRequests(r)
	}
	return f
}

func (f *newHTTPForm) answer(status int) answer {
	f.Fault = cmp.Or(f.Fault, f.Form.Fault)
	return answer{page: "newhttp", title: "New HTTP job", data: f, status: status}
}

func (u *UI) newHTTPPage(r *http.Request, v visitor) (answer, error) {
	return newHTTPFormOf(r, v).answer(0), nil
}

func (u *UI) newHTTP(r *http.Request, v visitor) (answer, error) {
	f := newHTTPFormOf(r, v)
	if f.Form.press(r.PostFormValue("do")) {
		return f.answer(0), nil
	}
	var ok bool
	if f.raw, ok = f.Form.spec(nil); !ok {
		return f.answer(http.StatusUnprocessableEntity), nil
	}
	return u.create(r, v, f)
}

func (f *newHTTPForm) wanted() (ops.Wanted, error) {
	w, err := f.newForm.wanted()
	w.Set.HTTP = &f.raw
	return w, err
}

func (f *newHTTPForm) blame(at *ops.WorkError) bool {
	f.Form.blame(at.Place, said(at.Err))
	return true
}
