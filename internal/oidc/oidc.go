// Package oidc signs people in at an OpenID Connect provider, and maps what the provider asserts about them to rights.
//
// Where to start: [New] and [Provider]; rules.go maps claims to rights and is pure. Protocol, signatures and keys are
// those of github.com/coreos/go-oidc.
//
// Sharp edges: a server starts without its provider. [Provider.Run] asks for the provider's metadata in the background,
// again and again; without it, sign-in is not available, and tokens and sessions work.
package oidc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Config configures sign-in at a provider.
type Config struct {
	Issuer   string   // the provider, as it names itself: https://login.example.com/realms/main
	ClientID string   // this server's name there
	Secret   string   // of a confidential client; "" = a public client
	Label    string   // on the button of the login page; default: the issuer's host
	Scopes   []string // to request; default DefaultScopes
	Groups   string   // claim with the person's groups; default "groups"
	Name     string   // claim with the person's name; default "name"
	Rules    []Rule   // who gets which rights; without a matching one a person gets none
	Audience string   // of access tokens that the API accepts; "" = it accepts none
	Callback string   // URL of this server to which the provider returns browsers; package embed sets it
	SignOut  string   // URL of this server to which it returns them after signing out; the same
	Logger   *slog.Logger
}

// DefaultScopes are what every provider knows.
var DefaultScopes = []string{oidc.ScopeOpenID, oidc.ScopeProfile, oidc.ScopeEmail}

// Times of requests to the provider.
const (
	answerTime = 10 * time.Second // for each request
	fresh      = 5 * time.Second  // a check that recent is not repeated before a browser is sent there
	checkEvery = time.Minute      // while the provider answers
	firstRetry = time.Second      // while it does not; doubled up to checkEvery
	maxAnswer  = 4 << 20          // bytes
	maxNext    = 2000             // bytes of a path to return to: cookies have at most 4 KiB
)

// Provider signs people in. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	client *http.Client
	log    *slog.Logger
	now    func() time.Time

	asking sync.Mutex    // one discovery at a time
	lost   chan struct{} // the provider stopped answering: Run asks sooner

	mu      sync.Mutex
	known   *metadata // nil until the provider has answered once
	checked time.Time // last discovery
	away    time.Time // since when the provider does not answer; zero = it does
	warned  bool      // of that
}

// metadata is what discovery returned.
type metadata struct {
	*oidc.Provider
	raw        []byte
	keys       *paced // reads the keys of bearers
	bearers    *oidc.IDTokenVerifier
	EndSession string   `json:"end_session_endpoint"`
	SendsIss   bool     `json:"authorization_response_iss_parameter_supported"`
	Methods    []string `json:"token_endpoint_auth_methods_supported"`
}

// New returns a provider. It sends no request: Run does.
func New(c Config) (*Provider, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if issuer, err := url.Parse(c.Issuer); err == nil {
		c.Label = cmp.Or(c.Label, issuer.Host)
	}
	c.Groups, c.Name = cmp.Or(c.Groups, "groups"), cmp.Or(c.Name, "name")
	if len(c.Scopes) == 0 {
		c.Scopes = DefaultScopes
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Provider{cfg: c, log: c.Logger, now: time.Now, lost: make(chan struct{}, 1), client: &http.Client{Timeout: answerTime, Transport: bounded{http.DefaultTransport}}}
	p.away = p.now()
	return p, nil
}

// Check validates the configuration.
func (c *Config) Check() error {
	issuer, err := url.Parse(c.Issuer)
	switch {
	case err != nil || issuer.Host == "" || issuer.Scheme != "https" && issuer.Scheme != "http" || issuer.User != nil || issuer.RawQuery != "" || issuer.Fragment != "":
		return kernel.Invalid("invalid issuer %.200q: want a URL without query, such as https://login.example.com", c.Issuer)
	case !safe(issuer):
		return kernel.Invalid("issuer %s has no TLS, and identities could be forged on the way: use https", c.Issuer)
	case c.ClientID == "":
		return kernel.Invalid("a provider needs the client ID under which it knows this server")
	case c.Audience != "" && c.Audience == c.ClientID:
		return kernel.Invalid("audience %.100q is the client ID, and ID tokens of people would be accepted as access tokens: configure another one", c.Audience)
	case len(c.Scopes) > 0 && !slices.Contains(c.Scopes, oidc.ScopeOpenID):
		return kernel.Invalid("invalid scopes %q: openid must be one of them", c.Scopes)
	case len(c.Rules) == 0:
		return kernel.Invalid("a provider needs rules: without one, people who sign in have no rights")
	}
	for i := range c.Rules {
		if err := c.Rules[i].Check(); err != nil {
			return kernel.Invalid("rule %d: %v", i+1, err)
		}
	}
	return nil
}

// safe reports whether requests to a URL have TLS, or stay on this machine.
func safe(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	return u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && local)
}

// Label returns the provider's name on pages.
func (p *Provider) Label() string { return p.cfg.Label }

// Away returns since when the provider does not answer; zero: it does.
func (p *Provider) Away() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away
}

// Run checks the provider until ctx ends.
func (p *Provider) Run(ctx context.Context) error {
	for wait := firstRetry; ; {
		next := checkEvery
		if _, err := p.discover(ctx); err != nil {
			next, wait = wait, min(2*wait, checkEvery)
		} else {
			wait = firstRetry
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-p.lost: // a sign-in has found out before
			timer.Stop()
		}
	}
}

// discover asks the provider for its metadata. Keys stay cached while the metadata are the same.
func (p *Provider) discover(ctx context.Context) (*metadata, error) {
	found, err := p.fetch(oidc.ClientContext(ctx, p.client))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checked = p.now()
	if err != nil {
		p.failed(err)
		return nil, p.unavailable()
	}
	if p.known == nil || !bytes.Equal(p.known.raw, found.raw) {
		p.known = found
	}
	if !p.away.IsZero() {
		p.log.Info("identity provider available", "issuer", p.cfg.Issuer)
		p.away, p.warned = time.Time{}, false
	}
	return p.known, nil
}

// failed notes that the provider does not answer. The caller has mu.
func (p *Provider) failed(err error) {
	if p.away.IsZero() {
		p.away = p.now()
		select {
		case p.lost <- struct{}{}:
		default:
		}
	}
	if !p.warned {
		p.log.Warn("identity provider unavailable", "issuer", p.cfg.Issuer, "err", err)
		p.warned = true
	}
}

func (p *Provider) unavailable() error {
	return kernel.Refuse(jobs.Unavailable, "sign-in with %s is not available", p.cfg.Label)
}

func (p *Provider) fetch(ctx context.Context) (*metadata, error) {
	provider, err := oidc.NewProvider(ctx, p.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	m := &metadata{Provider: provider}
	var raw json.RawMessage
	if err := errors.Join(provider.Claims(&raw), provider.Claims(m)); err != nil {
		return nil, err
	}
	m.raw = raw
	m.keys = &paced{next: p.client.Transport}
	m.bearers = provider.VerifierContext(oidc.ClientContext(ctx, &http.Client{Timeout: answerTime, Transport: m.keys}), &oidc.Config{ClientID: p.cfg.Audience})
	return m, nil
}

// current returns the provider's metadata, at most as old as fresh.
func (p *Provider) current(ctx context.Context) (*metadata, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	p.mu.Lock()
	known, away, recent := p.known, p.away, p.now().Sub(p.checked) < fresh
	p.mu.Unlock()
	switch {
	case !recent:
		return p.discover(ctx)
	case !away.IsZero():
		return nil, p.unavailable()
	}
	return known, nil
}

// attempt is what a browser keeps between the two ends of a sign-in, in a cookie that only it has: a response of the
// provider counts only in the browser that asked for it.
type attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"` // of PKCE
	Next     string `json:"t"`
}

// Begin returns the URL of the provider's sign-in page, and a text that the browser must keep for Finish.
func (p *Provider) Begin(ctx context.Context, next string) (to, kept string, err error) {
	known, err := p.current(ctx)
	if err != nil {
		return "", "", err
	}
	if len(next) > maxNext {
		next = "/"
	}
	a := attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next}
	raw, err := json.Marshal(a)
	if err != nil {
		return "", "", err
	}
	to = p.oauth(known).AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier))
	return to, base64.RawURLEncoding.EncodeToString(raw), nil
}

func (p *Provider) oauth(m *metadata) *oauth2.Config {
	endpoint := m.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader // a wrong guess would spend the code
	if p.cfg.Secret == "" || len(m.Methods) > 0 && !slices.Contains(m.Methods, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{ClientID: p.cfg.ClientID, ClientSecret: p.cfg.Secret, Endpoint: endpoint, RedirectURL: p.cfg.Callback, Scopes: p.cfg.Scopes}
}

// Finish returns who has signed in, from the query with which the provider sent the browser back, and where the browser
// wanted to go. An error of jobs.Forbidden means that the response is not one to this browser's request, or is refused;
// one of jobs.Unavailable that the provider does not answer; *ops.NoRights that no rule matches.
func (p *Provider) Finish(ctx context.Context, kept string, query url.Values) (ops.Identity, string, error) {
	var a attempt
	raw, err := base64.RawURLEncoding.DecodeString(kept)
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	if err != nil || a.State == "" || subtle.ConstantTimeCompare([]byte(a.State), []byte(query.Get("state"))) != 1 {
		return ops.Identity{}, "", kernel.Refuse(jobs.Forbidden, "this sign-in was not started in this browser, or more than ten minutes ago: start again")
	}
	known, err := p.current(ctx)
	if err != nil {
		return ops.Identity{}, "", err
	}
	if iss := query.Get("iss"); iss != p.cfg.Issuer && (iss != "" || known.SendsIss) {
		return ops.Identity{}, "", p.refused("the response names another issuer")
	}
	if code := query.Get("error"); code != "" {
		return ops.Identity{}, "", p.refused(errorCode(code))
	}
	ctx = oidc.ClientContext(ctx, p.client)
	claims, err := p.redeem(ctx, known, query.Get("code"), &a)
	if err != nil {
		return ops.Identity{}, "", err
	}
	id, err := p.cfg.identify(claims)
	return id, a.Next, err
}

// redeem exchanges the code for what the provider asserts about the person.
func (p *Provider) redeem(ctx context.Context, known *metadata, code string, a *attempt) (claims, error) {
	token, err := p.oauth(known).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refusal.Response.StatusCode < http.StatusInternalServerError {
		p.log.Warn("identity provider refused a sign-in", "issuer", p.cfg.Issuer, "code", refusal.ErrorCode)
		return nil, p.refused(errorCode(refusal.ErrorCode))
	}
	if err != nil {
		return nil, p.broken(ctx, err)
	}
	raw, _ := token.Extra("id_token").(string)
	verified, err := known.Verifier(&oidc.Config{ClientID: p.cfg.ClientID}).Verify(ctx, raw)
	if err != nil {
		p.log.Warn("identity provider sent an ID token that is not valid", "issuer", p.cfg.Issuer, "err", err)
		return nil, p.refused("the ID token is not valid")
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(a.Nonce)) != 1 {
		return nil, p.refused("the ID token is for another sign-in")
	}
	var all claims
	if err := verified.Claims(&all); err != nil {
		return nil, p.refused("the ID token has no claims")
	}
	if all.at(p.cfg.Groups) != nil || known.UserInfoEndpoint() == "" {
		return all, nil
	}
	info, err := known.UserInfo(ctx, oauth2.StaticTokenSource(token)) // many providers have groups only there
	if err != nil {
		return nil, p.broken(ctx, err)
	}
	var more claims
	if err := info.Claims(&more); err != nil || info.Subject != verified.Subject {
		return nil, p.refused("the user info is of another person")
	}
	maps.Copy(more, all) // what is signed counts
	return more, nil
}

// broken notes that the provider stopped answering.
func (p *Provider) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed(err)
	return p.unavailable()
}

func (p *Provider) refused(why string) error {
	return kernel.Refuse(jobs.Forbidden, "%s refused the sign-in (%s): start again", p.cfg.Label, why)
}

// errorCode returns a code of OAuth, or a general text: the query is not trusted, and its text shown on a page.
func errorCode(code string) string {
	if code == "" || len(code) > 40 || bytes.ContainsFunc([]byte(code), func(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }) {
		return "unknown error"
	}
	return code
}

// End returns the provider's sign-out page, to which a browser is sent after its session has ended here; "" = it has
// none, or does not answer.
func (p *Provider) End() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.endSession()
	if to == nil || !p.away.IsZero() {
		return ""
	}
	query := to.Query()
	query.Set("client_id", p.cfg.ClientID)
	query.Set("post_logout_redirect_uri", p.cfg.SignOut)
	to.RawQuery = query.Encode()
	return to.String()
}

// Origins returns the sites to which signing out may lead, also while the provider does not answer.
func (p *Provider) Origins() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	if issuer, err := url.Parse(p.cfg.Issuer); err == nil {
		list = append(list, issuer.Scheme+"://"+issuer.Host)
	}
	if to := p.endSession(); to != nil {
		list = append(list, to.Scheme+"://"+to.Host)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (p *Provider) endSession() *url.URL {
	if p.known == nil {
		return nil
	}
	to, err := url.Parse(p.known.EndSession)
	if err != nil || !safe(to) || strings.ContainsAny(to.Host, " ;,'") {
		return nil
	}
	return to
}

// bounded limits the size of responses.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}
