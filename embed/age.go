package embed

import (
	"fmt"
	"net/http"

	"github.com/carillon-scheduler/carillon/metastore"
)

// ageHeader says how old an answer may be, in seconds. It is there only if the answer was read from a copy while the
// leader did not answer.
const ageHeader = "Carillon-Age"

// aged says how old an answer may be.
func aged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(metastore.WithAge(r.Context()))
		next.ServeHTTP(&agedAnswer{ResponseWriter: w, r: r}, r)
	})
}

type agedAnswer struct {
	http.ResponseWriter
	r    *http.Request
	told bool
}

func (a *agedAnswer) tell() {
	if age := metastore.AgeOf(a.r.Context()); age > 0 && !a.told {
		a.Header().Set(ageHeader, fmt.Sprintf("%.3f", age.Seconds()))
	}
	a.told = true
}

// WriteHeader sends the status.
func (a *agedAnswer) WriteHeader(status int) {
	a.tell()
	a.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body.
func (a *agedAnswer) Write(b []byte) (int, error) {
	a.tell()
	return a.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find what is below.
func (a *agedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
