package httpspec

import (
	"net/url"
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
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
			return jobs.Invalid("service %.60q is at %.100q: it must be a URL such as http://billing:8080/api", name, base)
		}
	}
	return nil
}

// Resolve finds the URL to call: of a service by the table, any other as it is.
//
//	service://name/path            the service of that name
//	service://{serviceName}/path   the call's own service; service:/path says the same
//	service://{serviceGateway}/name/path  by way of the gateway
func (s Services) Resolve(f *Filled) (string, error) {
	rest, is := strings.CutPrefix(f.URL, "service:")
	if !is {
		return f.URL, nil
	}
	name := f.Own
	if authority, has := strings.CutPrefix(rest, "//"); has {
		end := strings.IndexAny(authority, "/?")
		if end < 0 {
			end = len(authority)
		}
		name, rest = authority[:end], authority[end:]
		switch name {
		case "{serviceName}":
			name = f.Own
		case "{serviceGateway}":
			name = Gateway
		}
	}
	base, ok := s[name]
	if !ok {
		return "", jobs.Invalid("there is no service %.60q in the table of whoever runs this job", name)
	}
	return strings.TrimSuffix(base, "/") + rest, nil
}
