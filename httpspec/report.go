package httpspec

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Report is what the other side of an asynchronous job says of it, when it is asked or calls back.
type Report struct {
	Status   string          `json:"status,omitempty"` // failed, succeed; "" = it goes on
	Message  string          `json:"message,omitempty"`
	Error    string          `json:"error,omitempty"`    // of failed: a code of its own, for retry rules
	Progress string          `json:"progress,omitempty"` // 20/60 or 30%
	Datetime string          `json:"datetime,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
}

// What a report says of a job, and what notifications say at its end.
const (
	StatusFailed       = "failed"
	StatusSucceed      = "succeed"
	StatusFinalFailed  = "finalFailed"
	StatusFinalSucceed = "finalSucceed"
)

// Over says that nothing follows a report.
func (r *Report) Over() bool { return r.Status != "" }

// Failed says that a report is of a failure.
func (r *Report) Failed() bool { return r.Status == StatusFailed || r.Status == StatusFinalFailed }

// ReadReport reads the body of a check's answer or of a call back.
func ReadReport(body []byte) (*Report, error) {
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("it is not JSON as a report is: %v", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch r.Status {
	case "", StatusFailed, StatusSucceed, StatusFinalFailed, StatusFinalSucceed:
		return &r, nil
	}
	return nil, fmt.Errorf("status is %.40q, it must be failed or succeed, or empty while it goes on", r.Status)
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
