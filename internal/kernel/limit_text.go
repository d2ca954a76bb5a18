package kernel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// The notation of limits and rules in one line: on the command line and in forms.

// LimitsText formats limits in a line: db=3, mail=2:10/s, api=10/s, tenant=2@args.customer_id.
func LimitsText(limits []jobs.Limit) string {
	words := make([]string, len(limits))
	for i, l := range limits {
		switch {
		case l.Rate.Max == 0:
			words[i] = fmt.Sprintf("%s=%d", l.Name, l.Max)
		case l.Max == 0:
			words[i] = fmt.Sprintf("%s=%s", l.Name, l.Rate)
		default:
			words[i] = fmt.Sprintf("%s=%d:%s", l.Name, l.Max, l.Rate)
		}
		if l.By != "" {
			words[i] += "@" + l.By
		}
	}
	return strings.Join(words, ",")
}

// ParseLimits reads what LimitsText writes.
func ParseLimits(text string) ([]jobs.Limit, error) {
	limits := []jobs.Limit{}
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		wrong := Invalid("invalid limit %.80q: want one such as db=3, mail=2:10/s or tenant=2@args.customer_id", one)
		said, by, _ := strings.Cut(one, "@")
		name, bound, ok := strings.Cut(said, "=")
		if !ok {
			return nil, wrong
		}
		l := jobs.Limit{Name: strings.TrimSpace(name), By: strings.TrimSpace(by)}
		most, rate, both := strings.Cut(bound, ":")
		if !both && strings.Contains(bound, "/") {
			most, rate = "", bound
		}
		var err error
		if most = strings.TrimSpace(most); most != "" {
			if l.Max, err = strconv.Atoi(most); err != nil {
				return nil, wrong
			}
		}
		if l.Rate, err = ParseRate(rate); err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// RulesText formats retry rules in a line, codes:attempts:delay:factor:maxDelay each: 502+503:3:10s:2:1m; timeout:1:0s.
func RulesText(rules []jobs.RetryRule) string {
	words := make([]string, len(rules))
	for i, r := range rules {
		words[i] = fmt.Sprintf("%s:%d:%s", strings.Join(r.Codes, "+"), r.Attempts, shortSpan(r.Delay))
		if r.Factor != 0 || r.MaxDelay != 0 {
			words[i] += ":"
			if r.Factor != 0 {
				words[i] += strconv.FormatFloat(r.Factor, 'g', -1, 64)
			}
		}
		if r.MaxDelay != 0 {
			words[i] += ":" + shortSpan(r.MaxDelay)
		}
	}
	return strings.Join(words, "; ")
}

// shortSpan formats a duration without trailing zero units.
func shortSpan(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// ParseRules reads what RulesText writes. Parts left out at the end of a rule are 2 attempts, 1 s, and the job's.
func ParseRules(text string) ([]jobs.RetryRule, error) {
	rules := []jobs.RetryRule{}
	for one := range strings.SplitSeq(text, ";") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		part := strings.Split(one, ":")
		wrong := Invalid("invalid retry rule %.80q: want one such as 502+503:3:10s:2:1m: codes, attempts, delay, factor and max delay", one)
		if len(part) > 5 {
			return nil, wrong
		}
		part = slices.Concat(part, make([]string, 5-len(part)))
		r := jobs.RetryRule{Codes: strings.Split(part[0], "+"), Attempts: DefaultRuleAttempts, Delay: DefaultRuleDelay}
		var err [4]error
		if part[1] != "" {
			r.Attempts, err[0] = strconv.Atoi(part[1])
		}
		if part[2] != "" {
			r.Delay, err[1] = time.ParseDuration(part[2])
		}
		if part[3] != "" {
			r.Factor, err[2] = strconv.ParseFloat(part[3], 64)
		}
		if part[4] != "" {
			r.MaxDelay, err[3] = time.ParseDuration(part[4])
		}
		for _, e := range err {
			if e != nil {
				return nil, wrong
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}
