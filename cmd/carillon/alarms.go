package main

import (
	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// alarms configures how messages of alarms are sent.
func (c *config) alarms() (alarms.Config, error) {
	allow, err := networks("alarms.allow", c.AlarmNetworks)
	if err != nil {
		return alarms.Config{}, err
	}
	theirs, err := networks("alarms.tenants-allow", c.AlarmTenantNetworks)
	if err != nil {
		return alarms.Config{}, err
	}
	guard, tenants := &httpjob.Guard{Allow: allow}, &httpjob.Guard{Allow: theirs}
	in := c.SMTP
	s := alarms.SMTP{Address: in.Address, TLS: in.TLS, User: in.User, From: in.From, Roots: in.CA}
	if (in.User == "") != (in.PasswordFile == "") {
		return alarms.Config{}, usage("smtp.user and smtp.password-file go together: set both or none")
	}
	if in.PasswordFile != "" {
		if s.Password, err = secretIn(in.PasswordFile); err != nil {
			return alarms.Config{}, usage("smtp.password-file: %w", err)
		}
	}
	cfg := alarms.Config{SMTP: s, Allow: guard.Check, TenantsAllow: tenants.Check, Heartbeat: c.Heartbeat}
	if err := cfg.Check(); err != nil {
		return alarms.Config{}, usage("alarms or smtp: %w", err)
	}
	return cfg, nil
}
