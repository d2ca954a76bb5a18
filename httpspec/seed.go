package httpspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// Document is a job of seed 002, field by field. Its requests are a [Job]; all other fields correspond to settings of
// our jobs.
type Document struct {
	JobID          string          `json:"jobId,omitempty"`
	JobName        string          `json:"jobName,omitempty"`
	JobDescription string          `json:"jobDescription,omitempty"`
	Creator        string          `json:"creator,omitempty"`
	CreatorName    string          `json:"creatorName,omitempty"`
	Active         *int            `json:"active,omitempty"` // 0 = paused; default: 1
	Timer          *schedule.Timer `json:"timer,omitempty"`  // none = once, now
	TimeoutSeconds *int            `json:"timeoutSeconds,omitempty"`
	Retry          []Retry         `json:"retry,omitempty"`
	MaxRetries     *int            `json:"maxRetries,omitempty"`

	ParentJob          string `json:"parentJob,omitempty"`
	ParentJobExecution uint32 `json:"parentJobExecution,omitempty"`

	// Fields of the job that a document always shows.
	Async bool `json:"async"`
	QoS   int  `json:"qos"`

	Job
}

// Retry is a retry rule of the seed, by error code.
type Retry struct {
	ErrorEquals     string   `json:"errorEquals"`
	IntervalSeconds *float64 `json:"intervalSeconds,omitempty"` // before the first retry; default: 1
	MaxAttempts     *int     `json:"maxAttempts,omitempty"`     // default: 2
	BackoffRate     *float64 `json:"backoffRate,omitempty"`     // default: 2
}

// The seed's defaults for missing fields.
const (
	seedTimeout     = 60 * time.Second
	seedMaxRetries  = 5
	seedInterval    = 1.0
	seedMaxAttempts = 2
	seedBackoff     = 2.0
)

// ParseDocument reads a document. The error names what is invalid.
func ParseDocument(raw []byte) (*Document, error) {
	var d Document
	if err := strictly(raw, &d); err != nil {
		return nil, kernel.Invalid("the job: %v", strings.TrimPrefix(err.Error(), "json: "))
	}
	d.Job.Async, d.Job.QoS = d.Async, d.QoS
	return &d, nil
}

// Settings converts the document; now is when it was written, and zone that of the job, in which a due time without an
// offset is read. Jobs of the seed are recurring ones: with the timer "external" they have no schedule. Only their rules
// retry their failures.
func (d *Document) Settings(now time.Time, zone string) (kernel.Settings, error) {
	none := kernel.Settings{}
	raw, err := json.Marshal(d.Job)
	if err != nil {
		return none, err
	}
	if _, err := Parse(raw); err != nil {
		return none, err
	}
	var timer schedule.Timer
	if d.Timer != nil {
		timer = *d.Timer
	}
	when, err := timer.Spec(now, zone)
	if at, ok := errors.AsType[*schedule.Error](err); ok {
		return none, kernel.Invalid("timer.%v", at)
	}
	if err != nil {
		return none, err
	}
	when.Zone = "" // the job keeps its own
	s := timetable.Settings(when)
	s.HTTP = new(json.RawMessage(raw))
	s.Name, s.Description = new(d.JobName), new(d.JobDescription)
	tags := append(d.tags(), given(timer, timerOf(&kernel.Policy{Schedule: when.Expr, Zone: zone, First: when.Due, End: when.End}, now))...)
	s.Tags = &tags
	s.Parent, s.First, s.End = &d.ParentJob, new(kernel.Instant(when.Due)), new(kernel.Instant(when.End)) // also none, which an update may bring
	s.MaxConcurrency, s.Overlap = new(1), new(jobs.OverlapSkip)                                           // one execution at a time
	s.Timeout = new(seedTimeout)
	if d.TimeoutSeconds != nil {
		s.Timeout = new(time.Duration(*d.TimeoutSeconds) * time.Second)
	}
	return s, d.retries(&s)
}

// tags identify the creator of the job.
func (d *Document) tags() (tags []string) {
	for _, part := range [][2]string{{"creator", d.Creator}, {"creatorName", d.CreatorName}} {
		if part[1] != "" {
			tags = append(tags, part[0]+"="+part[1])
		}
	}
	if d.ParentJobExecution != 0 {
		tags = append(tags, "parentJobExecution="+strconv.FormatUint(uint64(d.ParentJobExecution), 10))
	}
	return tags
}

// retries converts the rules. A synchronous job that times out fails with 500, as in the seed.
func (d *Document) retries(s *kernel.Settings) error {
	s.Retries = new(valueOr(d.MaxRetries, seedMaxRetries))
	rules := make([]jobs.RetryRule, 0, len(d.Retry)+1)
	for i, r := range d.Retry {
		if r.ErrorEquals == "" {
			return kernel.Invalid("retry[%d].errorEquals is missing", i)
		}
		interval, rate := valueOr(r.IntervalSeconds, seedInterval), valueOr(r.BackoffRate, seedBackoff)
		if interval < 0 || interval > kernel.MaxDuration.Seconds() {
			return kernel.Invalid("invalid retry[%d].intervalSeconds %v: want 0 to %v", i, interval, kernel.MaxDuration.Seconds())
		}
		rule := jobs.RetryRule{Codes: []string{r.ErrorEquals}, Attempts: valueOr(r.MaxAttempts, seedMaxAttempts), Delay: time.Duration(interval * float64(time.Second)), Factor: rate}
		if r.ErrorEquals == "500" && !d.Async {
			rule.Codes = append(rule.Codes, kernel.CodeTimeout)
		}
		rules = append(rules, rule)
	}
	if !slices.ContainsFunc(rules, func(r jobs.RetryRule) bool { return slices.Contains(r.Codes, "*") }) {
		rules = append(rules, jobs.RetryRule{Codes: []string{"*"}})
	}
	s.RetryRules, s.RetryJitter = &rules, new(jobs.JitterNone)
	return nil
}

func valueOr[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// DocumentOf converts a job to a document of seed 002, as far as that has fields for it.
func DocumentOf(d *kernel.Definition, active bool) (*Document, error) {
	p := &d.Policy
	out := &Document{JobID: string(d.Key), JobName: p.Name, JobDescription: p.Description, TimeoutSeconds: new(int(p.Timeout / time.Second)), MaxRetries: &p.Retries, Active: new(0)}
	if active {
		out.Active = new(1)
	}
	if len(p.HTTP) > 0 {
		if err := json.Unmarshal(p.HTTP, &out.Job); err != nil {
			return nil, fmt.Errorf("job %s: http: %w", d.Key, err)
		}
		out.Async, out.QoS = out.Job.Async, out.Job.QoS
	}
	for _, tag := range p.Tags {
		if v, is := strings.CutPrefix(tag, "creator="); is {
			out.Creator = v
		}
		if v, is := strings.CutPrefix(tag, "creatorName="); is {
			out.CreatorName = v
		}
		if v, is := strings.CutPrefix(tag, "parentJobExecution="); is {
			n, _ := strconv.ParseUint(v, 10, 32) // otherwise it is a tag of another system
			out.ParentJobExecution = uint32(n)
		}
	}
	out.ParentJob = p.Parent
	if t := timer(d); t != (schedule.Timer{}) {
		out.Timer = &t
	}
	for _, r := range p.RetryRules {
		if slices.Contains(r.Codes, "*") {
			continue
		}
		out.Retry = append(out.Retry, Retry{ErrorEquals: r.Codes[0], IntervalSeconds: new(r.Delay.Seconds()), MaxAttempts: &r.Attempts, BackoffRate: &r.Factor})
	}
	return out, nil
}
