package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/webhook"
)

// A receiver that believes only who knows the secret, and tells of each event once.
func ExampleVerify() {
	secret := []byte("kept in a file, and known to both")
	seen := map[string]bool{} // in a real receiver, kept for a day or so
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			http.Error(w, "too long", http.StatusRequestEntityTooLarge)
			return
		}
		if err := webhook.Verify(secret, r.Header.Get(webhook.SignatureHeader), body, time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		var e webhook.Event
		if err := json.Unmarshal(body, &e); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if !seen[e.ID] {
			seen[e.ID] = true
			fmt.Printf("%s: %s of %s, attempt %d: %s\n", e.Event, e.Cause, e.Job, e.Attempt, e.Error)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()

	// The other side is the scheduler: on-failure.url and on-failure.secret-file in its configuration.
	poster, err := webhook.New(webhook.Config{URL: receiver.URL, Secret: secret})
	if err != nil {
		panic(err)
	}
	poster.Ended(&kernel.Run{Tenant: "default", ID: jobs.NewID(time.Now()), Key: "billing.charge", State: jobs.Terminated, Cause: kernel.ByError,
		Attempt: 3, Error: "the bank said no", Ended: time.Now()})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go poster.Run(ctx)
	for poster.Stats().Sent == 0 { // and taken
		time.Sleep(time.Millisecond)
	}
	// Output: run.terminated: error of billing.charge, attempt 3: the bank said no
}
