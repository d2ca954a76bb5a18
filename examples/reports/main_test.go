package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A customer schedules a report while the program runs; the handler makes it, with that customer's arguments.
func TestReportOfACustomer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, listener) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	base := "http://" + listener.Addr().String()
	ask := func(method, path string, form url.Values) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		if form != nil {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	if status, body := ask(http.MethodPost, "/schedule", url.Values{"customer": {"c7"}, "cron": {"* * * * * *"}, "zone": {"Europe/Berlin"}}); status != http.StatusCreated {
		t.Fatalf("%d: %s", status, body)
	}
	if status, body := ask(http.MethodPost, "/schedule", url.Values{"customer": {"c8"}, "cron": {"every day"}}); status != http.StatusUnprocessableEntity {
		t.Errorf("a schedule that is none: %d: %s", status, body)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, body := ask(http.MethodGet, "/api/v1/runs?job=report.c7&state=Succeeded", nil)
		if strings.Contains(body, `"handler":"report.customer"`) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no report within a minute: %s", body)
		}
	}
}
