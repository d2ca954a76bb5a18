package main

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/webhook"
)

// kinds are the services that may be notified.
func kinds() (list []string) {
	for _, kind := range alarms.Kinds {
		list = append(list, string(kind))
	}
	return list
}

// onFailure configures notifications of failed runs. page is the address of the pages.
func (p *process) onFailure(page string) (webhook.Config, error) {
	on := p.cfg.OnFailure
	c := webhook.Config{Interval: on.Interval, Page: strings.TrimSuffix(cmp.Or(p.cfg.Public, page), "/")}
	t := alarms.Target{Kind: cmp.Or(alarms.Kind(on.Kind), alarms.Webhook), URL: on.URL, To: on.To}
	if t.Kind == alarms.Webhook && on.URL == "" && len(on.To) == 0 {
		if on.SecretFile != "" {
			return c, usage("on-failure.secret-file needs on-failure.url")
		}
		return c, nil
	}
	if on.SecretFile != "" {
		secret, err := secretIn(on.SecretFile)
		switch {
		case err != nil:
			return c, usage("on-failure.secret-file: %w", err)
		case t.Kind == alarms.Webhook && len(secret) < webhook.MinSecret:
			return c, usage("on-failure.secret-file: the secret in %s has %d bytes: want at least %d", on.SecretFile, len(secret), webhook.MinSecret)
		}
		t.Secret = secret
	}
	if err := t.Check(); err != nil {
		return c, usage("on-failure: %w", err)
	}
	if t.Kind == alarms.Webhook {
		c.URL = t.URL
		if t.Secret != "" {
			c.Secret = []byte(t.Secret)
		}
		return c, nil
	}
	smtp, err := p.smtp()
	if err != nil {
		return c, err
	}
	if t.Kind == alarms.Email && smtp.Address == "" {
		return c, usage("on-failure.kind email needs a server: set smtp.address and smtp.from")
	}
	sender, err := alarms.NewSender(alarms.Config{SMTP: smtp})
	if err != nil {
		return c, usage("smtp: %w", err)
	}
	c.Deliver, c.Address = sender.Deliver(t), string(t.Kind)
	if to, err := url.Parse(t.URL); err == nil && to.Host != "" {
		c.Address = to.Host
	}
	return c, nil
}

// smtp returns the server for e-mail; without an address there is none.
func (p *process) smtp() (alarms.SMTP, error) {
	in := p.cfg.SMTP
	s := alarms.SMTP{Address: in.Address, TLS: in.TLS, User: in.User, From: in.From, Roots: in.CA}
	if (in.User == "") != (in.PasswordFile == "") {
		return s, usage("smtp.user and smtp.password-file go together: set both or none")
	}
	if in.PasswordFile == "" {
		return s, nil
	}
	password, err := secretIn(in.PasswordFile)
	if err != nil {
		return s, usage("smtp.password-file: %w", err)
	}
	s.Password = password
	return s, nil
}
