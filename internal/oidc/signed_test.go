package oidc

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// signer is a provider that sends the token that a test wants.
type signer struct {
	url   string
	key   *rsa.PrivateKey
	token string // ID token of the next response
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newSigner(t *testing.T) *signer {
	s := &signer{key: newKey(t)}
	send := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		send(w, map[string]any{"issuer": s.url, "authorization_endpoint": s.url + "/auth", "token_endpoint": s.url + "/token", "jwks_uri": s.url + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		send(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig",
			"n": b64(s.key.N.Bytes()), "e": b64(big.NewInt(int64(s.key.E)).Bytes())}}})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		send(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": s.token})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// sign returns a token; without a key, one of alg none.
func sign(t *testing.T, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	head := `{"alg":"RS256","kid":"1"}`
	if key == nil {
		head = `{"alg":"none"}`
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := b64([]byte(head)) + "." + b64(body)
	if key == nil {
		return text + "."
	}
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64(sig)
}

// An ID token and an access token count only if all of them is right: nonce, issuer, audience, time and signature.
func TestForgedTokens(t *testing.T) {
	s := newSigner(t)
	p, err := New(Config{Issuer: s.url, ClientID: "c", Audience: "api", Callback: "http://127.0.0.1/login/callback",
		Rules: []Rule{{Group: "a", Role: "viewer"}}})
	if err != nil {
		t.Fatal(err)
	}
	foreign := newKey(t)
	hour := time.Now().Add(time.Hour).Unix()
	for _, c := range []struct {
		name   string
		key    *rsa.PrivateKey
		change map[string]any
		id     bool // accepted as ID token
		access bool // accepted as access token
	}{
		{"right", s.key, nil, true, true},
		{"wrong nonce", s.key, map[string]any{"nonce": "other"}, false, true}, // access tokens have none
		{"no nonce", s.key, map[string]any{"nonce": ""}, false, true},
		{"wrong iss", s.key, map[string]any{"iss": "https://login.example.com"}, false, false},
		{"wrong aud", s.key, map[string]any{"aud": "other"}, false, false},
		{"expired", s.key, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, false, false},
		{"foreign key", foreign, nil, false, false},
		{"alg none", nil, nil, false, false},
	} {
		to, kept, err := p.Begin(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		at, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		token := func(aud string) string {
			all := map[string]any{"iss": s.url, "aud": aud, "sub": "1", "exp": hour, "nonce": at.Query().Get("nonce"), "groups": []string{"a"}}
			maps.Copy(all, c.change)
			return sign(t, c.key, all)
		}
		s.token = token("c")
		_, _, err = p.Finish(t.Context(), kept, url.Values{"state": {at.Query().Get("state")}, "code": {"x"}})
		if c.id && err != nil || !c.id && !errors.Is(err, jobs.Forbidden) {
			t.Errorf("%s: ID token: %v", c.name, err)
		}
		_, err = p.Authenticate(t.Context(), token("api"))
		if c.access && err != nil || !c.access && !errors.Is(err, ops.ErrNotKnown) {
			t.Errorf("%s: access token: %v", c.name, err)
		}
		if _, err = p.Authenticate(t.Context(), token("c")); !errors.Is(err, ops.ErrNotKnown) {
			t.Errorf("%s: an ID token as access token: %v", c.name, err)
		}
	}
}
