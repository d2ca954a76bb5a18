package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/carillon-scheduler/carillon/embed"
)

// signInConfig is the sign-in of people at an identity provider; without an issuer there is none.
type signInConfig struct {
	embed.SignIn
	SecretFile string
}

func init() {
	settings = append(settings, []setting{
		{"sessions.idle", "", "1h", "sessions of browsers end without a request for so long, at least 1m", durationOf(func(c *config) *time.Duration { return &c.Sessions.Idle })},
		{"sessions.longest", "", "12h", "sessions of browsers end at this age, at most 720h", durationOf(func(c *config) *time.Duration { return &c.Sessions.Longest })},
		{"sign-in.issuer", "sign-in-issuer", "", "URL of the OpenID Connect provider at which people sign in; default: they sign in with tokens", textOf(func(c *config) *string { return &c.SignIn.Issuer })},
		{"sign-in.client-id", "sign-in-client-id", "", "client ID of this server at the provider", textOf(func(c *config) *string { return &c.SignIn.ClientID })},
		{"sign-in.client-secret-file", "sign-in-client-secret-file", "", "file with the client secret, readable by its owner only; default: a public client", textOf(func(c *config) *string { return &c.SignIn.SecretFile })},
		{"sign-in.label", "", "", "name of the provider on the login page; default: the issuer's host", textOf(func(c *config) *string { return &c.SignIn.Label })},
		{"sign-in.scopes", "", "openid,profile,email", "scopes to request, comma-separated", func(c *config, text string) error { c.SignIn.Scopes = commas(text); return nil }},
		{"sign-in.groups-claim", "", "groups", "claim with a person's groups, or a path such as realm_access.roles", textOf(func(c *config) *string { return &c.SignIn.Groups })},
		{"sign-in.name-claim", "", "name", "claim with a person's name in the audit; without it their e-mail address, or their subject", textOf(func(c *config) *string { return &c.SignIn.Name })},
		{"sign-in.audience", "", "", "audience of the provider's access tokens that the API accepts, such as carillon-api; default: none", textOf(func(c *config) *string { return &c.SignIn.Audience })},
		{"sign-in.rules", "", "", "list of rules: which groups have which role; see docs/sign-in.md", setRules},
	}...)
}

// isList reports whether a setting's value in the file is a list of objects. Its text is the list as YAML in one line,
// as in the environment.
func isList(key string) bool { return key == "sign-in.rules" }

// listText is a list of the file as text.
func listText(node *yaml.Node) (string, error) {
	flow(node)
	raw, err := yaml.Marshal(node)
	return strings.Join(strings.Fields(string(raw)), " "), err
}

func flow(node *yaml.Node) {
	node.Style |= yaml.FlowStyle
	node.HeadComment, node.LineComment, node.FootComment = "", "", ""
	for _, inner := range node.Content {
		if inner.Kind != yaml.ScalarNode {
			flow(inner)
		}
	}
}

func setRules(c *config, text string) error {
	d := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	d.KnownFields(true)
	if err := d.Decode(&c.SignIn.Rules); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("invalid list: %s: want such as [{group: ops, role: operator}]", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	for i := range c.SignIn.Rules {
		if err := c.SignIn.Rules[i].Check(); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return nil
}

// checkSignIn checks the settings about people who sign in.
func (c *config) checkSignIn() {
	if err := c.Sessions.Check(); err != nil {
		c.wrong("sessions.idle and sessions.longest: %v", err)
	}
	if c.SignIn.Issuer == "" {
		for _, key := range []string{"sign-in.client-id", "sign-in.client-secret-file", "sign-in.label", "sign-in.audience", "sign-in.rules"} {
			if v, given := c.values[key]; given && v.text != "" {
				c.wrong("%s (from %s) has no effect without sign-in.issuer: set it, or remove %[1]s", key, v.origin)
			}
		}
		return
	}
	if err := c.SignIn.Check(); err != nil {
		c.wrong("sign-in (issuer from %s): %v", c.values["sign-in.issuer"].origin, err)
	}
	if host, _, _ := net.SplitHostPort(c.HTTP); c.Public == "" && !isLoopback(host) {
		c.wrong("sign-in needs http.url, to which the provider returns browsers: set it to the URL of the dashboard")
	}
}

// signIn returns the sign-in of people; nil without one.
func (c *config) signIn() (*embed.SignIn, error) {
	if c.SignIn.Issuer == "" {
		return nil, nil
	}
	s := c.SignIn.SignIn
	if c.SignIn.SecretFile != "" {
		var err error
		if s.Secret, err = secretIn(c.SignIn.SecretFile); err != nil {
			return nil, usage("sign-in.client-secret-file: %w", err)
		}
	}
	return &s, nil
}
