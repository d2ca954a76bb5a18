package httpspec

import (
	"net/url"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Gateway is the name of the service that routes to all others.
const Gateway = "serviceGateway"

// Services maps the names of services to base URLs.
type Services map[string]string

// Check validates the table.
func (s Services) Check() error {
	for name, base := range s {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return kernel.Invalid("service %.60q is at %.100q: want a URL such as http://billing:8080/api", name, base)
		}
		if err := checkHost(u.Host); err != nil {
			return kernel.Invalid("service %.60q is at %.100q: %v", name, base, err)
		}
	}
	return nil
}

// Resolve returns the URL to call: that of a service from the table, any other unchanged. It refuses a URL that a
// secret of the call may not be sent to.
//
//	service://name/path            the service of that name
//	service://{serviceName}/path   the call's own service; service:/path says the same
//	service://{serviceGateway}/name/path  by way of the gateway
func (s Services) Resolve(f *Filled, secrets Secrets) (string, error) {
	to, err := s.find(f.URL, f.Own)
	if err != nil {
		return "", err
	}
	return to, secrets.mayGo(f.secrets, to)
}

// find returns the URL itself, or that of the service that it names. own is the service of service:/path.
func (s Services) find(to, own string) (string, error) {
	rest, is := strings.CutPrefix(to, "service:")
	if !is {
		return to, nil
	}
	name := own
	if authority, has := strings.CutPrefix(rest, "//"); has {
		end := strings.IndexAny(authority, "/?")
		if end < 0 {
			end = len(authority)
		}
		name, rest = authority[:end], authority[end:]
		switch name {
		case "{serviceName}":
			name = own
		case "{serviceGateway}":
			name = Gateway
		}
	}
	base, ok := s[name]
	if !ok {
		return "", kernel.Invalid("unknown service %.60q: add it to http-jobs.services where this job runs", name)
	}
	return strings.TrimSuffix(base, "/") + rest, nil
}
