package oidc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Rule gives rights to those who are in a group, or have a claim with a value.
type Rule struct {
	Group  string      `yaml:"group,omitempty"`
	Claim  string      `yaml:"claim,omitempty"`  // its name, or a path such as realm_access.roles
	Value  string      `yaml:"value,omitempty"`  // of the claim, or one of its values
	Tenant jobs.Tenant `yaml:"tenant,omitempty"` // default: the default tenant
	Role   string      `yaml:"role"`             // viewer, operator or admin
	// Jobs, Apps and Tags limit an operator to jobs: see kernel.Scope.
	Jobs []string `yaml:"jobs,omitempty"`
	Apps []string `yaml:"apps,omitempty"`
	Tags []string `yaml:"tags,omitempty"`
}

// Check validates the rule.
func (r *Rule) Check() error {
	if (r.Group == "") == (r.Claim == "") || (r.Claim == "") != (r.Value == "") {
		return kernel.Invalid("want a group, or a claim and its value")
	}
	if r.Tenant != "" {
		if err := kernel.CheckName("tenant", string(r.Tenant)); err != nil {
			return err
		}
	}
	if _, err := ops.ParseRole(r.Role); err != nil {
		return err
	}
	s := r.scope()
	return s.Check(r.Role)
}

func (r *Rule) scope() kernel.Scope { return kernel.Scope{Keys: r.Jobs, Apps: r.Apps, Tags: r.Tags} }

func (r *Rule) tenant() jobs.Tenant {
	if r.Tenant == "" {
		return jobs.DefaultTenant
	}
	return r.Tenant
}

// claims are what a provider asserts about a person.
type claims map[string]any

// at returns a claim by its name, or by a path into objects; nil if there is none.
func (c claims) at(path string) any {
	if v, ok := c[path]; ok {
		return v
	}
	first, rest, ok := strings.Cut(path, ".")
	if inner, is := c[first].(map[string]any); ok && is {
		return claims(inner).at(rest)
	}
	return nil
}

// values returns the texts of a claim: one, or those of a list.
func (c claims) values(path string) []string {
	if v := c["email_verified"]; path == "email" && (v == false || v == "false") { // some providers send a text
		return nil // anybody may have typed it
	}
	switch v := c.at(path).(type) {
	case string:
		return []string{v}
	case bool:
		return []string{fmt.Sprint(v)}
	case []any:
		var list []string
		for _, one := range v {
			if text, ok := one.(string); ok {
				list = append(list, text)
			}
		}
		return list
	}
	return nil
}

// text returns the only text of a claim, or "".
func (c claims) text(path string) string {
	if list := c.values(path); len(list) == 1 {
		return strings.TrimSpace(list[0])
	}
	return ""
}

// identify returns who the claims are about and the rights by the rules: in each tenant the highest role of the rules
// that match, for the jobs of all rules with that role. Tenants are in the order of the rules. The error is *ops.NoRights if no rule matches.
func (c *Config) identify(all claims) (ops.Identity, error) {
	id := ops.Identity{Person: kernel.Person{Subject: all.text("sub"), Name: all.text(c.Name), Email: all.text("email")}.Fit()}
	groups := all.values(c.Groups)
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Group != "" && !slices.Contains(groups, r.Group) || r.Claim != "" && !slices.Contains(all.values(r.Claim), r.Value) {
			continue
		}
		id.Rights = grant(id.Rights, kernel.Rights{Tenant: r.tenant(), Role: r.Role, Scope: r.scope()})
	}
	if len(id.Rights) == 0 {
		return id, &ops.NoRights{Person: id.Person, Groups: groups, Claim: c.Groups}
	}
	return id, nil
}

// grant adds the rights of a rule.
func grant(list []kernel.Rights, more kernel.Rights) []kernel.Rights {
	i := slices.IndexFunc(list, func(r kernel.Rights) bool { return r.Tenant == more.Tenant })
	if i < 0 {
		return append(list, more)
	}
	had, _ := ops.ParseRole(list[i].Role)
	switch role, _ := ops.ParseRole(more.Role); {
	case role > had:
		list[i] = more
	case role == had:
		list[i].Scope = list[i].Scope.With(&more.Scope)
	}
	return list
}
