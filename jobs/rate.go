package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is a rate limit: bursts of at most Max, and on average at most Max in each Per. Zero is no limit.
// Its text is 10/s, 100/m, 5/30s, or none.
type Rate struct {
	Max int
	Per time.Duration
}

var rateUnits = []struct {
	name string
	d    time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

func parseRate(s string) (Rate, error) {
	s = strings.TrimSpace(s)
	if s == "" || s == "none" {
		return Rate{}, nil
	}
	wrong := invalid("rate %.40q is invalid: want count/time, such as 10/s, 100/m or 5/30s", s)
	n, per, ok := strings.Cut(s, "/")
	r := Rate{}
	var err error
	if r.Max, err = strconv.Atoi(strings.TrimSpace(n)); !ok || err != nil {
		return Rate{}, wrong
	}
	per = strings.TrimSpace(per)
	for _, u := range rateUnits {
		if u.name == per {
			r.Per = u.d
		}
	}
	if r.Per == 0 {
		if r.Per, err = time.ParseDuration(per); err != nil {
			return Rate{}, wrong
		}
	}
	if r == (Rate{}) {
		return Rate{}, wrong
	}
	return r, nil
}

// String is the text of a rate, such as 10/s; "none" for no limit.
func (r Rate) String() string {
	if r.Max == 0 {
		return "none"
	}
	for _, u := range rateUnits {
		if u.d == r.Per {
			return fmt.Sprintf("%d/%s", r.Max, u.name)
		}
	}
	return fmt.Sprintf("%d/%s", r.Max, r.Per)
}

// MarshalText writes a rate as its String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (r *Rate) UnmarshalText(b []byte) error {
	v, err := parseRate(string(b))
	*r = v
	return err
}
