package kernel

import (
	"path"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Scope limits an operator or a client to some jobs: those whose key matches one of Keys, whose app is one of Apps, or
// that have one of Tags. The empty scope is all jobs. An operator reads other jobs, but does not act on them.
type Scope struct {
	Keys []string // keys, or patterns such as billing.*
	Apps []string
	Tags []string
}

// MaxScope is the most keys, apps and tags of a scope.
const MaxScope = 100

// All reports whether the scope is all jobs.
func (s *Scope) All() bool { return len(s.Keys)+len(s.Apps)+len(s.Tags) == 0 }

// Has reports whether a job is in the scope.
func (s *Scope) Has(key jobs.Key, app string, tags []string) bool {
	return s.All() || slices.Contains(s.Apps, app) ||
		slices.ContainsFunc(s.Tags, func(tag string) bool { return slices.Contains(tags, tag) }) ||
		slices.ContainsFunc(s.Keys, func(pattern string) bool { ok, _ := path.Match(pattern, string(key)); return ok })
}

// Same reports whether two scopes have the same text.
func (s *Scope) Same(o *Scope) bool {
	return slices.Equal(s.Keys, o.Keys) && slices.Equal(s.Apps, o.Apps) && slices.Equal(s.Tags, o.Tags)
}

// With returns the union of two scopes.
func (s *Scope) With(o *Scope) Scope {
	if s.All() || o.All() {
		return Scope{}
	}
	return Scope{union(s.Keys, o.Keys), union(s.Apps, o.Apps), union(s.Tags, o.Tags)}
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// String returns the scope as a text, such as "jobs billing.*, app shop, tag money"; "" for all jobs.
func (s *Scope) String() string {
	var parts []string
	for _, part := range []struct {
		name string
		list []string
	}{{"jobs", s.Keys}, {"app", s.Apps}, {"tag", s.Tags}} {
		if len(part.list) > 0 {
			parts = append(parts, part.name+" "+strings.Join(part.list, " "))
		}
	}
	return strings.Join(parts, ", ")
}

// Check validates the scope of a role.
func (s *Scope) Check(role string) error {
	if s.All() {
		return nil
	}
	if role != RoleOperator && role != RoleClient {
		return Invalid("role %.20s is limited to %.200s: only an operator or a client can be limited to jobs", role, s)
	}
	if n := len(s.Keys) + len(s.Apps) + len(s.Tags); n > MaxScope {
		return Invalid("a scope of %d keys, apps and tags: at most %d are allowed", n, MaxScope)
	}
	for _, pattern := range s.Keys {
		if _, err := path.Match(pattern, ""); err != nil || !plainName(pattern, 200) || strings.ContainsAny(pattern, ", ") {
			return Invalid("invalid job pattern %.200q: want a key or a pattern such as billing.*", pattern)
		}
	}
	for _, app := range s.Apps {
		if err := CheckName("app", app); err != nil {
			return err
		}
	}
	for _, tag := range s.Tags {
		if !plainName(tag, 200) || strings.Contains(tag, ",") {
			return Invalid("invalid tag %.200q of a scope: want 1 to 200 bytes without commas", tag)
		}
	}
	return nil
}

func wireScope(c *coder, s *Scope) {
	wireStrings(c, &s.Keys)
	wireStrings(c, &s.Apps)
	wireStrings(c, &s.Tags)
}
