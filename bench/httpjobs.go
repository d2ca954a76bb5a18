package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// ask is the HTTP job that is measured: one small request to a server of this process.
var ask = jobs.Trigger[noArgs]("bench.ask")

// httpJobs has runs of an HTTP job be done by `carillon worker`, enqueued in bulk: each is a request of a hundred bytes
// to a server on this machine, which answers at once. That server runs in this process, and its time is in the figures.
func httpJobs(ctx context.Context, h *fixture) (map[string]float64, error) {
	var asked atomic.Int64
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	answering := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked.Add(1)
		_, _ = w.Write([]byte(`{"ok":true}`))
	})}
	go func() { _ = answering.Serve(target) }()
	defer answering.Close()
	if err := h.hireHTTP(ctx); err != nil {
		return nil, err
	}
	spec := fmt.Sprintf(`{"key":"bench.ask","kind":"triggered","app":"http","http":{"request":[{"method":"POST","url":"http://%s/",
		"body":{"customer":"${$.customer}","note":"${$.note}"}}]}}`, target.Addr())
	if err := h.post(ctx, "/api/v1/jobs", spec); err != nil {
		return nil, err
	}
	n := number(50_000)
	if err := h.bulkOf(ctx, h.client, ask, hundred, n/10, *size); err != nil { // warm up
		return nil, err
	}
	if _, err := h.settled(ctx, time.Now()); err != nil {
		return nil, err
	}
	h.profile()
	cpu, begin, before := h.cpu(), time.Now(), asked.Load()
	if err := h.bulkOf(ctx, h.client, ask, hundred, n, *size); err != nil {
		return nil, err
	}
	all, err := h.settled(ctx, begin)
	if err != nil {
		return nil, err
	}
	if got := asked.Load() - before; got != int64(n) {
		return nil, fmt.Errorf("%d requests were made for %d runs", got, n)
	}
	return map[string]float64{"jobs": float64(n), "jobs_per_s": float64(n) / all.Seconds(), "cpu_us_per_job": float64((h.cpu() - cpu).Microseconds()) / float64(n)}, nil
}

// hireHTTP starts a worker process for HTTP jobs.
func (h *fixture) hireHTTP(ctx context.Context) error {
	args := []string{"worker", "--nats", "nats://" + h.nats, "--http-jobs-allow", "127.0.0.1"}
	if *slots > 0 {
		args = append(args, fmt.Sprintf("--slots=%d", *slots))
	}
	if *profile != "" {
		h.workerDebug = freeAddress()
		args = append(args, "--debug-addr", h.workerDebug)
	}
	c := exec.CommandContext(ctx, h.program, args...)
	c.Env, c.SysProcAttr = append(os.Environ(), "CARILLON_LOG_LEVEL=warn"), bound()
	if *verbose {
		c.Stderr = os.Stderr
	}
	if err := c.Start(); err != nil {
		return err
	}
	h.workers = append(h.workers, c)
	for ctx.Err() == nil {
		if w, err := h.get("/api/v1/workers"); err == nil && strings.Contains(w, `"app":"http"`) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the worker did not register")
}

func (h *fixture) post(ctx context.Context, path, body string) error {
	return h.create(ctx, path, body, nil)
}

// create is post with a response, which it decodes.
func (h *fixture) create(ctx context.Context, path, body string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.http+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	text, err := h.send(r)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}
