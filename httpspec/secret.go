package httpspec

import (
	"net/url"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Secret is a value for ${secret:NAME} in calls, and the hosts that it may be sent to. A host without a port includes
// all its ports.
type Secret struct {
	Value string
	Hosts []string // such as api.example.com, 10.1.0.7:8080 or [::1]
}

// Secrets are secrets by name.
type Secrets map[string]Secret

// Check validates the secrets. The error contains no value.
func (s Secrets) Check() error {
	for id, secret := range s {
		switch {
		case !name.MatchString(id):
			return kernel.Invalid("invalid secret name %.60q: want letters, digits and _, not starting with a digit", id)
		case secret.Value == "":
			return kernel.Invalid("secret %s is empty", id)
		case len(secret.Hosts) == 0:
			return kernel.Invalid("secret %s has no hosts: list the hosts that it may be sent to", id)
		}
		for _, host := range secret.Hosts {
			if err := checkHost(host); err != nil {
				return kernel.Invalid("secret %s: %v", id, err)
			}
		}
	}
	return nil
}

// mayGo reports whether the secret may be sent to a host and a port.
func (s Secret) mayGo(host, port string) bool {
	return slices.ContainsFunc(s.Hosts, func(allowed string) bool {
		h, p := splitHost(allowed)
		return strings.EqualFold(h, host) && (p == "" || p == port)
	})
}

// values returns the values of secrets, without missing ones.
func (s Secrets) values(names []string) (values []string) {
	for _, id := range names {
		if secret, ok := s[id]; ok {
			values = append(values, secret.Value)
		}
	}
	return values
}

// mayGo returns why one of the named secrets may not be sent to a URL, or nil.
func (s Secrets) mayGo(names []string, to string) error {
	u, err := url.Parse(to)
	if err != nil {
		return kernel.Invalid("invalid URL")
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[u.Scheme == "https"]
	}
	for _, id := range names {
		secret, ok := s[id]
		if !ok {
			return kernel.Invalid("the worker has no secret %s", id)
		}
		if !secret.mayGo(u.Hostname(), port) {
			return kernel.Refuse(jobs.Forbidden, "secret %s may not be sent to %.100s: its hosts are %s", id, u.Host, strings.Join(secret.Hosts, ", "))
		}
	}
	return nil
}
