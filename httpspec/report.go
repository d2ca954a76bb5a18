package httpspec

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Report is the state of an asynchronous job, from a check or from a callback of the other system.
type Report struct {
	Status   string          `json:"status,omitempty"` // failed, succeed; "" = unfinished
	Message  string          `json:"message,omitempty"`
	Error    string          `json:"error,omitempty"`    // of failed: an error code, for retry rules
	Progress string          `json:"progress,omitempty"` // 20/60 or 30%
	Datetime string          `json:"datetime,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
}

// The statuses of a report, and of notifications of an end.
const (
	StatusFailed       = "failed"
	StatusSucceed      = "succeed"
	StatusFinalFailed  = "finalFailed"
	StatusFinalSucceed = "finalSucceed"
)

// Over reports whether the report is final.
func (r *Report) Over() bool { return r.Status != "" }

// Failed reports whether the report is of a failure.
func (r *Report) Failed() bool { return r.Status == StatusFailed || r.Status == StatusFinalFailed }

// ReadReport reads the body of a check's response or of a callback.
func ReadReport(body []byte) (*Report, error) {
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("invalid JSON: %v", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch r.Status {
	case "", StatusFailed, StatusSucceed, StatusFinalFailed, StatusFinalSucceed:
		return &r, nil
	}
	return nil, fmt.Errorf("invalid status %.40q: want failed or succeed, or empty while it is unfinished", r.Status)
}

// Done reads a progress of 20/60 as 20 of 60, and one of 30% as 30 of 100.
func (r *Report) Done() (done, total int64, ok bool) {
	s := strings.TrimSpace(r.Progress)
	if percent, is := strings.CutSuffix(s, "%"); is {
		f, err := strconv.ParseFloat(strings.TrimSpace(percent), 64)
		return int64(f), 100, err == nil && f >= 0 && f <= 100
	}
	a, b, is := strings.Cut(s, "/")
	if !is {
		return 0, 0, false
	}
	done, err := strconv.ParseInt(strings.TrimSpace(a), 10, 64)
	total, err2 := strconv.ParseInt(strings.TrimSpace(b), 10, 64)
	return done, total, err == nil && err2 == nil && done >= 0 && total > 0 && done <= total
}
