package carillon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/secretfile"
	"github.com/carillon-scheduler/carillon/jobs"
)

// connect connects to the bus at an address. Its errors contain no token and no password.
func connect(address string, cfg natsbus.Config) (bus.Bus, error) {
	servers, err := read(address, &cfg)
	if err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	plain := make([]string, len(servers)) // for errors
	for i, u := range servers {
		plain[i] = u.Scheme + "://" + u.Host
	}
	secret := make([]string, len(servers))
	for i, u := range servers {
		secret[i] = u.String()
	}
	b, err := natsbus.Connect(context.Background(), strings.Join(secret, ","), cfg)
	switch {
	case errors.Is(err, jobs.Forbidden):
		return nil, fmt.Errorf("carillon: the bus at %s: %w. Give a token of role %s before the @ of the address or as ?token-file=; `carillon tokens create --role %[3]s` makes one",
			strings.Join(plain, ","), err, cfg.As.Role)
	case errors.Is(err, jobs.Unavailable):
		return nil, fmt.Errorf("carillon: the bus at %s: %w. Is a server running there? `carillon dev` starts one", strings.Join(plain, ","), err)
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return nil, fmt.Errorf("carillon: the bus at %s has an untrusted certificate: %w. Add ?ca=/path/ca.pem to the address",
			strings.Join(plain, ","), err)
	case err != nil:
		return nil, fmt.Errorf("carillon: the bus at %s: %w", strings.Join(plain, ","), err)
	}
	return b, nil
}

// read parses an address into its servers, with their users, and writes the parameters into cfg.
func read(address string, cfg *natsbus.Config) ([]*url.URL, error) {
	var servers []*url.URL
	for one := range strings.SplitSeq(address, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case !strings.Contains(one, "://"):
			return nil, kernel.Invalid("invalid address: want a URL such as nats://127.0.0.1:4222 or tls://bus.example:4222")
		case err != nil:
			return nil, withoutURL(err)
		case u.Scheme != "nats" && u.Scheme != "tls":
			return nil, kernel.Invalid("invalid scheme %.20q of the address: want nats:// or tls://", u.Scheme)
		case u.Host == "":
			return nil, kernel.Invalid("the address has no host: want one such as nats://127.0.0.1:4222")
		case strings.Trim(u.Path, "/") != "" || u.Fragment != "":
			return nil, kernel.Invalid("the address of %s has a path or fragment: remove it", u.Host)
		}
		if err := settle(u, cfg); err != nil {
			return nil, fmt.Errorf("the address of %s: %w", u.Host, err)
		}
		servers = append(servers, &url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host})
	}
	for _, u := range servers {
		if cfg.Token != "" && u.User != nil {
			return nil, kernel.Invalid("the address of %s has a user before the @ and token-file: remove one", u.Host)
		}
		if cfg.TLS != nil && u.Scheme != "tls" {
			return nil, kernel.Invalid("ca is given, but the address of %s does not begin with tls://", u.Host)
		}
	}
	return servers, nil
}

// settle writes the parameters of an address into cfg.
func settle(u *url.URL, cfg *natsbus.Config) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return kernel.Invalid("invalid parameters after the ?: want token-file=/path or ca=/path")
	}
	for key, values := range query {
		path := values[0]
		switch {
		case len(values) > 1 || path == "":
			return kernel.Invalid("parameter %.20q needs one value", key)
		case key == "token-file":
			if cfg.Token, err = secretIn(path); err != nil {
				return err
			}
		case key == "ca":
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(raw) {
				return kernel.Invalid("%s holds no certificates in PEM", path)
			}
			cfg.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		default:
			return kernel.Invalid("unknown parameter %.20q: want token-file or ca", key)
		}
	}
	return nil
}

// secretIn reads a file with one secret. It refuses a file that other users can read: the secret is compromised.
func secretIn(path string) (string, error) {
	if err := secretfile.Check(path); err != nil {
		return "", err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(raw))
	if secret == "" || strings.ContainsAny(secret, " \t\r\n") {
		return "", kernel.Invalid("%s holds no token", path)
	}
	return secret, nil
}

// tenantOf returns the tenant of the token in an address; "" = it has none, or it cannot be read.
func tenantOf(address string) jobs.Tenant {
	var cfg natsbus.Config
	servers, err := read(address, &cfg)
	if err != nil {
		return "" // connect reports it
	}
	texts := []string{cfg.Token}
	for _, u := range servers {
		texts = append(texts, u.User.Username())
	}
	for _, text := range texts {
		if tenant, _, _, ok := kernel.CutToken(text); ok {
			return tenant
		}
	}
	return ""
}

// userOf returns the name of a client: the user in an address, or "client". A user without a password is a token, and
// tokens must not become names.
func userOf(address string) string {
	first, _, _ := strings.Cut(address, ",")
	if u, err := url.Parse(first); err == nil {
		if _, password := u.User.Password(); password && u.User.Username() != "" {
			return u.User.Username()
		}
	}
	return "client"
}

// withoutURL removes the address, which may contain a password, from an error.
func withoutURL(err error) error {
	if bad, ok := err.(*url.Error); ok {
		return fmt.Errorf("the address is not a URL: %w", bad.Err)
	}
	return err
}
