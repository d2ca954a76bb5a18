package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// explicit converts rules as code writes them, with zero for unset fields, to rules as they are stored.
func explicit(rules []jobs.RetryRule) []jobs.RetryRule {
	rules = slices.Clone(rules)
	for i := range rules {
		r := &rules[i]
		switch r.Attempts {
		case 0:
			r.Attempts = DefaultRuleAttempts
		case jobs.None:
			r.Attempts = 0
		}
		switch r.Delay {
		case 0:
			r.Delay = DefaultRuleDelay
		case jobs.None:
			r.Delay = 0
		}
	}
	return rules
}

// The defaults of a retry rule without attempts or delay.
const (
	DefaultRuleAttempts = 2
	DefaultRuleDelay    = time.Second
)

// The codes of failures without a code of jobs.Fail.
const (
	CodeTimeout = "timeout" // the attempt took longer than its timeout
	CodePanic   = "panic"   // the handler panicked
	CodeError   = "error"   // any other error: rules use this name, and rows store no code
)

// Failing is a job's policy for failures beyond a number of retries and a delay.
type Failing struct {
	Factor     float64
	Jitter     jobs.Jitter
	Rules      []jobs.RetryRule
	PauseAfter int
}

// Failing returns the policy for a job's failures, or nil if it is only a number of retries and a delay.
func (p *Policy) Failing() *Failing {
	if (p.RetryFactor == 0 || p.RetryFactor == 2) && (p.RetryJitter == "" || p.RetryJitter == jobs.JitterHalf) && len(p.RetryRules) == 0 && p.PauseAfter == 0 {
		return nil
	}
	return &Failing{Factor: p.RetryFactor, Jitter: p.RetryJitter, Rules: p.RetryRules, PauseAfter: p.PauseAfter}
}

// rule returns the number of the first rule for a code, from 1, or 0.
func (f *Failing) rule(code string) int {
	if f == nil {
		return 0
	}
	if code == "" {
		code = CodeError
	}
	for i := range f.Rules {
		if slices.Contains(f.Rules[i].Codes, code) || slices.Contains(f.Rules[i].Codes, "*") {
			return i + 1
		}
	}
	return 0
}

// Fault is an attempt that failed with a code, or by a rule.
type Fault struct {
	Attempt uint32
	Code    string
	Rule    int // the number of the rule that matched, from 1; 0 = none
	Used    int // retries of the run by that rule, including this one
}

// maxFaults limits a run's faults.
const maxFaults = 64

// Code returns the code of the run's last attempt, or "".
func (run *Run) Code() string { return run.CodeOf(run.Attempt) }

// CodeOf returns the error code of an attempt, or "".
func (run *Run) CodeOf(attempt uint32) string {
	for i := len(run.Faults) - 1; i >= 0; i-- {
		if run.Faults[i].Attempt == attempt {
			return run.Faults[i].Code
		}
	}
	return ""
}

// blame records how an attempt failed. The latest use of each rule is kept as long as the run.
func (run *Run) blame(f Fault) {
	if f.Code == "" && f.Rule == 0 {
		return
	}
	faults := slices.Clone(run.Faults)
	if len(faults) >= maxFaults {
		last := map[int]int{}
		for i := range faults {
			last[faults[i].Rule] = i
		}
		for i := range faults {
			if last[faults[i].Rule] != i {
				faults = slices.Delete(faults, i, i+1)
				break
			}
		}
	}
	run.Faults = append(faults, f)
}

// again reports whether a run that has just failed is retried, and how long it waits before.
func (run *Run) again(code string) (time.Duration, bool) {
	t := &run.Terms
	n := t.Failing.rule(code)
	if n == 0 {
		run.blame(Fault{Attempt: run.Attempt, Code: code})
		f, j := 2.0, jobs.JitterHalf
		if t.Failing != nil {
			f, j = t.Failing.Factor, t.Failing.Jitter
		}
		return grown(t.RetryDelay, t.RetryDelayMax, f, j, int(run.Failures), run.ID), int(run.Failures) <= t.Retries
	}
	rule, used := &t.Failing.Rules[n-1], 1
	for _, f := range run.Faults {
		if f.Rule == n {
			used = f.Used + 1
		}
	}
	run.blame(Fault{Attempt: run.Attempt, Code: code, Rule: n, Used: used})
	factor, most := rule.Factor, rule.MaxDelay
	if factor == 0 {
		factor = t.Failing.Factor
	}
	if most == 0 {
		most = t.RetryDelayMax
	}
	all := t.Retries > 0 && int(run.Failures) > t.Retries
	return grown(rule.Delay, most, factor, t.Failing.Jitter, used, run.ID), used <= rule.Attempts && !all
}

// Backoff returns the wait before the n-th retry (n from 1): base doubled n-1 times, at most most, less up to half of
// it. The reduction is derived from the run's ID and n, so that runs that failed together are not retried together, and
// every replica computes the same. Zero base means at once.
func Backoff(base, most time.Duration, n int, id jobs.ID) time.Duration {
	return grown(base, most, 2, jobs.JitterHalf, n, id)
}

func grown(base, most time.Duration, factor float64, jitter jobs.Jitter, n int, id jobs.ID) time.Duration {
	if base <= 0 {
		return 0
	}
	if factor < 1 {
		factor = 2
	}
	d := base
	for i := 1; i < n && (most <= 0 || d < most); i++ {
		if float64(d) > float64(MaxDuration)/factor {
			d = MaxDuration
			break
		}
		d = time.Duration(float64(d) * factor)
		if factor == 1 {
			break
		}
	}
	if most > 0 {
		d = min(d, max(most, base))
	}
	if jitter == jobs.JitterNone {
		return d
	}
	x := binary.BigEndian.Uint64(id[8:]) ^ uint64(n)*0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9 // the finishing step of splitmix64 (Steele, Lea, Flood 2014)
	x ^= x >> 32
	part := float64(x>>11) / (1 << 53)
	if jitter == jobs.JitterFull {
		return d - time.Duration(float64(d)*part)
	}
	return d - time.Duration(float64(d)/2*part)
}

func checkCode(what, code string) error {
	if len(code) > MaxCode || code != plain.Code(code) {
		return Invalid("invalid %s %.80q: want at most %d bytes of plain text", what, code, MaxCode)
	}
	return nil
}

// checkRetries validates the settings of retries.
func (s *Settings) checkRetries() error {
	if s.Rate != nil {
		if err := checkRate(*s.Rate, "rate"); err != nil {
			return err
		}
	}
	if s.RetryBudget != nil {
		if err := checkRate(*s.RetryBudget, "retry budget"); err != nil {
			return err
		}
	}
	if f := s.RetryFactor; f != nil && !(*f >= 1 && *f <= MaxRetryFactor) {
		return Invalid("invalid retry factor %v: want 1 to %d", *f, MaxRetryFactor)
	}
	if err := within("pause after", s.PauseAfter, 0, 1_000_000); err != nil {
		return err
	}
	if s.RetryRules == nil {
		return nil
	}
	if len(*s.RetryRules) > MaxRetryRules {
		return Invalid("too many retry rules: %d of %d", len(*s.RetryRules), MaxRetryRules)
	}
	for i := range *s.RetryRules {
		if err := checkRule(&(*s.RetryRules)[i], i+1); err != nil {
			return err
		}
	}
	return nil
}

func checkRule(r *jobs.RetryRule, n int) error {
	if len(r.Codes) == 0 || len(r.Codes) > 32 {
		return Invalid("retry rule %d has %d codes: want 1 to 32; \"*\" matches any", n, len(r.Codes))
	}
	for _, code := range r.Codes {
		if code == "" {
			return Invalid("retry rule %d has an empty code; the code of an error without one is %q", n, CodeError)
		}
		if err := checkCode(fmt.Sprintf("retry rule %d: code", n), code); err != nil {
			return err
		}
	}
	if r.Attempts < 0 || r.Attempts > MaxRetries {
		return Invalid("retry rule %d has %d attempts: want 0 to %d", n, r.Attempts, MaxRetries)
	}
	if r.Factor != 0 && !(r.Factor >= 1 && r.Factor <= MaxRetryFactor) {
		return Invalid("retry rule %d has factor %v: want 1 to %d", n, r.Factor, MaxRetryFactor)
	}
	for _, d := range []time.Duration{r.Delay, r.MaxDelay} {
		if d < 0 || d > MaxDuration {
			return Invalid("retry rule %d has a delay of %v: want 0 to %v", n, d, MaxDuration)
		}
	}
	return nil
}
