package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// httpJobsConfig configures HTTP jobs in this process.
type httpJobsConfig struct {
	On                           bool
	Allow, Ports                 string // with commas
	Services, Variables, Secrets string // name=value, with commas
	FeedbackURL, InnerFeedback   string
	BreakerAfter                 string
	BreakerPause                 time.Duration
	CallTimeout                  time.Duration
	TenantsAllow                 string
}

// tenantHTTPJobs is the configuration of the workers for HTTP jobs of other tenants: they have none of the server's
// services, variables, secrets and networks.
func (c *config) tenantHTTPJobs(own *httpjob.Config) (*httpjob.Config, error) {
	if own == nil {
		return nil, nil
	}
	allow, err := networks("http-jobs.tenants-allow", c.HTTPJobs.TenantsAllow)
	return &httpjob.Config{App: own.App, Guard: httpjob.Guard{Allow: allow, Ports: own.Guard.Ports}, Breaker: own.Breaker, FeedbackURL: own.FeedbackURL, CallTimeout: own.CallTimeout}, err
}

// httpJobs returns the configuration of the worker for HTTP jobs, nil if this process runs none.
func (c *config) httpJobs() (*httpjob.Config, error) {
	h := &c.HTTPJobs
	if !h.On {
		return nil, nil
	}
	out := &httpjob.Config{Services: httpspec.Services{}, FeedbackURL: cmp.Or(h.FeedbackURL, c.Public), InnerFeedbackURL: h.InnerFeedback}
	var err error
	if h.BreakerAfter != "" {
		if out.Breaker.After, err = strconv.Atoi(h.BreakerAfter); err != nil || out.Breaker.After < 0 {
			return nil, usage("invalid http-jobs.breaker-after %q: want a number of failures", h.BreakerAfter)
		}
		out.Breaker.Off = out.Breaker.After == 0
	}
	out.Breaker.Pause, out.CallTimeout = h.BreakerPause, h.CallTimeout
	if h.CallTimeout < 0 || h.CallTimeout > httpjob.MaxCallTimeout {
		return nil, usage("invalid http-jobs.call-timeout %v: want 1ms to %v", h.CallTimeout, httpjob.MaxCallTimeout)
	}
	if out.Guard.Allow, err = networks("http-jobs.allow", h.Allow); err != nil {
		return nil, err
	}
	for _, text := range commas(h.Ports) {
		port, err := strconv.Atoi(text)
		if err != nil || port < 1 || port > 65535 {
			return nil, usage("invalid http-jobs.ports %q: want port numbers", text)
		}
		if err := httpspec.HTTPPort(port); err != nil {
			return nil, usage("http-jobs.ports: %v", err)
		}
		out.Guard.Ports = append(out.Guard.Ports, port)
	}
	if out.Variables, err = pairs("http-jobs.variables", h.Variables); err != nil {
		return nil, err
	}
	services, err := pairs("http-jobs.services", h.Services)
	if err != nil {
		return nil, err
	}
	out.Services = services
	if err := out.Services.Check(); err != nil {
		return nil, usage("http-jobs.services: %v", err)
	}
	out.Secrets, err = secretsOf(h.Secrets)
	return out, err
}

// secretsOf parses NAME@HOST=FILE, comma-separated, with + between the hosts of one.
func secretsOf(text string) (httpspec.Secrets, error) {
	files, err := pairs("http-jobs.secrets", text)
	if err != nil {
		return nil, err
	}
	all := httpspec.Secrets{}
	for what, file := range files {
		name, hosts, ok := strings.Cut(what, "@")
		if !ok {
			return nil, usage("http-jobs.secrets: %s has no host: want %s@api.example.com=%s, with + between hosts", name, name, file)
		}
		if _, twice := all[name]; twice {
			return nil, usage("http-jobs.secrets: %s is there twice: join its hosts with +", name)
		}
		value, err := secretIn(file)
		if err != nil {
			return nil, fmt.Errorf("http-jobs.secrets: %s: %w", name, err)
		}
		all[name] = httpspec.Secret{Value: value, Hosts: strings.Split(hosts, "+")}
	}
	if err := all.Check(); err != nil {
		return nil, usage("http-jobs.secrets: %v", err)
	}
	return all, nil
}

// tryHTTPJobs turns HTTP jobs on in a demo process, unless the configuration sets them: they may call this machine.
func (c *config) tryHTTPJobs() {
	if c.values["http-jobs.on"].origin == "default" {
		c.HTTPJobs.On = true
	}
	if c.HTTPJobs.Allow == "" {
		c.HTTPJobs.Allow = "127.0.0.0/8,::1"
	}
	if c.AlarmNetworks == "" {
		c.AlarmNetworks = "127.0.0.0/8,::1"
	}
}

// httpJobsLine returns the line about HTTP jobs in the banner, or "".
func (c *config) httpJobsLine() string {
	switch h := &c.HTTPJobs; {
	case !h.On:
		return ""
	case h.Allow == "":
		return "run here and may call public addresses"
	default:
		return "run here and may call public addresses, " + strings.ReplaceAll(h.Allow, ",", ", ")
	}
}

// networks parses comma-separated networks or addresses, of a setting.
func networks(setting, text string) (list []netip.Prefix, err error) {
	for _, one := range commas(text) {
		p, err := netip.ParsePrefix(one)
		if a, addrErr := netip.ParseAddr(one); err != nil && addrErr == nil {
			p, err = a.Prefix(a.BitLen())
		}
		if err != nil {
			return nil, usage("invalid %s %q: want a network such as 10.1.0.0/16", setting, one)
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// pairs parses comma-separated name=value pairs.
func pairs(key, text string) (map[string]string, error) {
	out := map[string]string{}
	for _, one := range commas(text) {
		name, value, ok := strings.Cut(one, "=")
		if !ok || name == "" || value == "" {
			return nil, usage("invalid %s %q: want name=value", key, one)
		}
		if _, twice := out[name]; twice {
			return nil, usage("%s: %s is there twice", key, name)
		}
		out[name] = value
	}
	return out, nil
}

func commas(text string) (list []string) {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			list = append(list, one)
		}
	}
	return list
}
