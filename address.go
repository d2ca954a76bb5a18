package carillon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// connect opens the bus behind an address. No error of it tells a token or a password.
func connect(address string, cfg natsbus.Config) (bus.Bus, error) {
	servers, err := read(address, &cfg)
	if err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	plain := make([]string, len(servers)) // as they are shown
	for i, u := range servers {
		plain[i] = u.Scheme + "://" + u.Host
	}
	words := make([]string, len(servers))
	for i, u := range servers {
		words[i] = u.String()
	}
	b, err := natsbus.Connect(context.Background(), strings.Join(words, ","), cfg)
	switch {
	case errors.Is(err, jobs.Forbidden):
		return nil, fmt.Errorf("carillon: the bus at %s: %w. Give a token of role %s before the @ of the address or as ?token-file=; `carillon tokens create --role %[3]s` makes one",
			strings.Join(plain, ","), err, cfg.As.Role)
	case errors.Is(err, jobs.Unavailable):
		return nil, fmt.Errorf("carillon: the bus at %s: %w. Is a server running there? `carillon dev` starts one", strings.Join(plain, ","), err)
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return nil, fmt.Errorf("carillon: the bus at %s cannot prove who it is: %w. Name the certificate that vouches for it by ?ca=/path/ca.pem behind the address",
			strings.Join(plain, ","), err)
	case err != nil:
		return nil, fmt.Errorf("carillon: the bus at %s: %w", strings.Join(plain, ","), err)
	}
	return b, nil
}

// read takes an address apart: the servers, each with its user if it has one, and what is said behind the ?, which
// goes into cfg.
func read(address string, cfg *natsbus.Config) ([]*url.URL, error) {
	var servers []*url.URL
	for one := range strings.SplitSeq(address, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case !strings.Contains(one, "://"):
			return nil, kernel.Invalid("the address is not a URL that begins with nats:// or tls://: give one such as nats://127.0.0.1:4222")
		case err != nil:
			return nil, withoutURL(err)
		case u.Scheme != "nats" && u.Scheme != "tls":
			return nil, kernel.Invalid("the address begins with %.20q and is not one of a bus: it begins with nats:// or tls://", u.Scheme)
		case u.Host == "":
			return nil, kernel.Invalid("the address names no host: give one such as nats://127.0.0.1:4222")
		case strings.Trim(u.Path, "/") != "" || u.Fragment != "":
			return nil, kernel.Invalid("the address of %s has something behind its port: leave that out", u.Host)
		}
		if err := settle(u, cfg); err != nil {
			return nil, fmt.Errorf("the address of %s: %w", u.Host, err)
		}
		servers = append(servers, &url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host})
	}
	for _, u := range servers {
		if cfg.Token != "" && u.User != nil {
			return nil, kernel.Invalid("the address of %s has a user before the @, and token-file is given, too: leave one out", u.Host)
		}
		if cfg.TLS != nil && u.Scheme != "tls" {
			return nil, kernel.Invalid("ca is given, but the address of %s does not begin with tls://", u.Host)
		}
	}
	return servers, nil
}

// settle heeds what is said behind the ?.
func settle(u *url.URL, cfg *natsbus.Config) error {
	said, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return kernel.Invalid("what is behind the ? cannot be read")
	}
	for key, values := range said {
		path := values[0]
		switch {
		case len(values) > 1 || path == "":
			return kernel.Invalid("%.20q needs one value", key)
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
			return kernel.Invalid("%.20q is not known: token-file and ca are", key)
		}
	}
	return nil
}

// secretIn reads a file with one secret. One that others can read is refused: the secret is none any more.
func secretIn(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return "", kernel.Invalid("%s can be read by others than its owner (%v): chmod 600 it, and think of the token in it as known", path, mode)
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

// userOf is the name of a client: the user in an address, or "client". A user without a password is a token, and no
// name for the world to see.
func userOf(address string) string {
	first, _, _ := strings.Cut(address, ",")
	if u, err := url.Parse(first); err == nil {
		if _, password := u.User.Password(); password && u.User.Username() != "" {
			return u.User.Username()
		}
	}
	return "client"
}

// withoutURL takes the address out of an error about it: there may be a password in it.
func withoutURL(err error) error {
	if bad, ok := err.(*url.Error); ok {
		return fmt.Errorf("the address is not a URL: %w", bad.Err)
	}
	return err
}
