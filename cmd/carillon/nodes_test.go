package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// invite retries a first node without a leader; it does not retry another program.
func TestCastAsksAgainForAnInvitation(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusGatewayTimeout)
		case 3:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"token":"invitation"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer first.Close()
	c := cast{cfg: &config{HTTP: strings.TrimPrefix(first.URL, "http://")}}
	file := filepath.Join(t.TempDir(), "token")
	if err := c.invite(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if token, err := os.ReadFile(file); err != nil || string(token) != "invitation\n" {
		t.Errorf("the token is %q (%v)", token, err)
	}
	if err := c.invite(t.Context(), file); err == nil || !strings.Contains(err.Error(), "404") || asked.Load() != 4 {
		t.Errorf("after %d requests: %v", asked.Load(), err)
	}
}
