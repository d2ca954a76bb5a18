package embed

import (
	"fmt"
	"net/http"

	"github.com/carillon-scheduler/carillon/metastore"
)

// ageHeader is the maximum age of a response in seconds. It is set only on responses read from this node's copy while
// the leader did not answer.
const ageHeader = "Carillon-Age"

// aged sets ageHeader on responses that may be stale. Requests that may change something are answered by current rows
// only.
func aged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		r = r.WithContext(metastore.WithAge(r.Context()))
		next.ServeHTTP(&agedAnswer{ResponseWriter: w, r: r}, r)
	})
}

type agedAnswer struct {
	http.ResponseWriter
	r      *http.Request
	marked bool
}

func (a *agedAnswer) mark() {
	if age := metastore.AgeOf(a.r.Context()); age > 0 && !a.marked {
		a.Header().Set(ageHeader, fmt.Sprintf("%.3f", age.Seconds()))
	}
	a.marked = true
}

// WriteHeader sends the status.
func (a *agedAnswer) WriteHeader(status int) {
	a.mark()
	a.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body.
func (a *agedAnswer) Write(b []byte) (int, error) {
	a.mark()
	return a.ResponseWriter.Write(b)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (a *agedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
