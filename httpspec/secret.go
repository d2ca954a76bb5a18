package httpspec

import (
	"net/url"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Secret is a value that calls name by ${secret:NAME}, and the hosts that it may be sent to. A host without a port
// stands for all its ports.
type Secret struct {
	Value string
	Hosts []string // such as api.example.com, 10.1.0.7:8080 or [::1]
}

// Secrets are secrets by name.
type Secrets map[string]Secret

// Check says what is wrong with the secrets, or nil. It names no value.
func (s Secrets) Check() error {
	for id, secret := range s {
		switch {
		case !name.MatchString(id):
			return kernel.Invalid("secret %.60q: a secret is named by letters, digits and _, and begins with no digit", id)
		case secret.Value == "":
			return kernel.Invalid("secret %s is empty", id)
		case len(secret.Hosts) == 0:
			return kernel.Invalid("secret %s names no host: say which hosts it may be sent to", id)
		}
		for _, host := range secret.Hosts {
			if err := checkHost(host); err != nil {
				return kernel.Invalid("secret %s: %v", id, err)
			}
		}
	}
	return nil
}

// mayGo says whether the secret may be sent to a host and a port.
func (s Secret) mayGo(host, port string) bool {
	return slices.ContainsFunc(s.Hosts, func(allowed string) bool {
		h, p := splitHost(allowed)
		return strings.EqualFold(h, host) && (p == "" || p == port)
	})
}

// values are the values of secrets, without those that are not there.
func (s Secrets) values(names []string) (values []string) {
	for _, id := range names {
		if secret, ok := s[id]; ok {
			values = append(values, secret.Value)
		}
	}
	return values
}

// mayGo says why one of the named secrets may not be sent to a URL, or nil.
func (s Secrets) mayGo(names []string, to string) error {
	u, err := url.Parse(to)
	if err != nil {
		return kernel.Invalid("that is no URL to call")
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[u.Scheme == "https"]
	}
	for _, id := range names {
		secret, ok := s[id]
		if !ok {
			return kernel.Invalid("there is no secret %s where this job runs", id)
		}
		if !secret.mayGo(u.Hostname(), port) {
			return kernel.Refuse(jobs.Forbidden, "secret %s may not be sent to %.100s: its hosts are %s", id, u.Host, strings.Join(secret.Hosts, ", "))
		}
	}
	return nil
}
