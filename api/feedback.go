package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Systems that do the work of an asynchronous HTTP job have no token. They get a URL of one route, signed for one
// attempt of one run; it is valid for nothing else.

const feedbackRoute = "POST " + Prefix + "/seed/jobs/{jobId}/feedback/{requestCounts}"

// feedback accepts a report from the system that does the work of a run.
func (a *API) feedback(w http.ResponseWriter, r *http.Request) {
	if wait := a.rates.take("address " + addressOf(r)); wait > 0 {
		tooMany(wait).write(w)
		return
	}
	err := a.takeReport(r)
	if errors.Is(err, jobs.Forbidden) {
		if wait := a.wrong.take(addressOf(r)); wait > 0 {
			tooMany(wait).write(w)
			return
		}
	}
	answer := SeedAnswer{Code: http.StatusOK}
	if err != nil {
		p := problemOf(r.Context(), a.episodes, err)
		if errors.Is(err, jobs.Forbidden) {
			p.Status, p.Detail = http.StatusUnauthorized, "invalid signature: send the whole URL as it was given"
		}
		answer.Code, answer.Message = p.Status, &p.Detail
		for name, value := range p.header {
			w.Header().Set(name, value)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.Code)
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *API) takeReport(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return kernel.Invalid("cannot read the body")
	}
	query := r.URL.Query()
	k := kernel.Report{}
	attempt, err1 := strconv.ParseUint(query.Get("attempt"), 10, 32)
	nonce, err2 := strconv.ParseUint(r.PathValue("requestCounts"), 10, 64)
	signature, err3 := base64.RawURLEncoding.DecodeString(query.Get("token"))
	run, err4 := jobs.ParseID(query.Get("run"))
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || attempt == 0 || run.IsZero() {
		return kernel.ErrNotSigned
	}
	k.ID, k.Attempt, k.Nonce, k.Signature = run, uint32(attempt), nonce, signature
	tenant, key := jobs.Tenant(query.Get("tenant")), jobs.Key(r.PathValue("jobId"))
	if err := a.ops.Waited(r.Context(), tenant, key, k); err != nil {
		return err
	}
	// Errors of the body are only reported to senders with a valid signature.
	report, err := httpspec.ReadReport(body)
	if err != nil {
		return kernel.Invalid("the body: %v", err)
	}
	if k.Report, err = json.Marshal(report); err != nil {
		return err
	}
	k.Final = report.Over()
	return a.ops.Report(r.Context(), tenant, key, k)
}
