package httpspec

import (
	"net/url"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Gateway is the name under which a table of services has the one that leads to all others.
const Gateway = "serviceGateway"

// Services says where services are: a base URL for each name.
type Services map[string]string

// Check says what is wrong with the table, or nil.
func (s Services) Check() error {
	for name, base := range s {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return kernel.Invalid("service %.60q is at %.100q: it must be a URL such as http://billing:8080/api", name, base)
		}
		if err := checkHost(u.Host); err != nil {
			return kernel.Invalid("service %.60q is at %.100q: %v", name, base, err)
		}
	}
	return nil
}

// Resolve finds the URL to call: of a service by the table, any other as it is. It refuses one to which a secret of the
// call may not be sent.
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

// find is the URL itself, or what it means if it names a service. own is the service that service:/path means.
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
		return "", kernel.Invalid("there is no service %.60q where this job runs: http-jobs.services names those that there are", name)
	}
	return strings.TrimSuffix(base, "/") + rest, nil
}
