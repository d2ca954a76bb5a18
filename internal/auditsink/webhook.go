package auditsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/carillon-scheduler/carillon/webhook"
)

// hook posts lines, as many as there are in one request, with a signature of package webhook.
type hook struct {
	name   string
	url    string
	secret []byte
	client *http.Client
}

func newWebhook(name string, u *url.URL, cfg Config) (Sink, error) {
	ip := net.ParseIP(u.Hostname())
	switch local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback(); {
	case u.Host == "" || u.User != nil:
		return nil, fmt.Errorf("sink %s: invalid address: want https://host/path, without a user", name)
	case u.Scheme == "http" && !local:
		return nil, fmt.Errorf("sink %s: invalid address: http sends the audit in the clear: want https", name)
	case len(cfg.Secret) < webhook.MinSecret:
		return nil, fmt.Errorf("sink %s needs a secret of %d bytes or more that signs its requests: set audit.secret-file", name, webhook.MinSecret)
	}
	road := http.DefaultTransport.(*http.Transport).Clone()
	var err error
	if road.TLSClientConfig, err = cfg.verify(name, ""); err != nil {
		return nil, err
	}
	c := &http.Client{Transport: road, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &hook{name: name, url: u.String(), secret: cfg.Secret, client: c}, nil
}

func (s *hook) Name() string { return s.name }

// Send posts the lines. Any answer but 2xx is an error.
func (s *hook) Send(ctx context.Context, lines [][]byte) error {
	body := bytes.Join(lines, nil)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return bare(err)
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	r.Header.Set("User-Agent", "carillon")
	r.Header.Set(webhook.SignatureHeader, webhook.Sign(s.secret, time.Now(), body))
	answer, err := s.client.Do(r)
	if err != nil {
		return bare(err)
	}
	if err := answer.Body.Close(); err != nil {
		return bare(err)
	}
	if answer.StatusCode/100 != 2 {
		return errors.New("the webhook answered " + answer.Status)
	}
	return nil
}

// Close closes idle connections.
func (s *hook) Close() { s.client.CloseIdleConnections() }
