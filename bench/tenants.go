package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon"
)

// floodEnv holds the address of the bus of a process that enqueues very many runs: a program of another tenant.
const floodEnv = "CARILLON_BENCH_FLOOD"

// beFlood enqueues number(1_000_000) runs.
func beFlood(url string) error {
	c, err := carillon.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	return new(fixture).bulkOf(context.Background(), c, noop, hundred, number(1_000_000), *size)
}

// flood starts a process that floods, and waits until it has ended.
func (h *fixture) flood(ctx context.Context, url string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, self, "-n="+strconv.Itoa(*count), "-size="+strconv.Itoa(*size))
	c.Env = append(os.Environ(), floodEnv+"="+url)
	c.Stderr, c.SysProcAttr = os.Stderr, bound()
	return c.Run()
}

// tenant creates a tenant, hires a worker for it, and returns the address of the bus for a client of it.
func (h *fixture) tenant(ctx context.Context, name string) (string, error) {
	var made struct {
		Token string `json:"token"`
	}
	if err := h.create(ctx, "/api/v1/tenants", `{"name":"`+name+`"}`, &made); err != nil {
		return "", err
	}
	h.token = made.Token // what is asked from now on is about this tenant
	url := map[string]string{}
	for _, role := range []string{"worker", "client"} {
		var t struct {
			Text string `json:"text"`
		}
		if err := h.create(ctx, "/api/v1/tokens", `{"name":"`+role+`","role":"`+role+`"}`, &t); err != nil {
			return "", err
		}
		file := filepath.Join(h.dir, name+"."+role)
		if err := os.WriteFile(file, []byte(t.Text), 0o600); err != nil {
			return "", err
		}
		url[role] = h.url() + "?token-file=" + file
	}
	return url["client"], h.hireAt(ctx, url["worker"], post{})
}

// tenantsFlooded has a tenant that enqueues ten runs a second, first alone, then while another one enqueues very many.
func tenantsFlooded(ctx context.Context, h *fixture) (map[string]float64, error) {
	root := h.token
	url, err := h.tenant(ctx, "quiet")
	if err != nil {
		return nil, err
	}
	quiet, err := carillon.Dial(url)
	if err != nil {
		return nil, err
	}
	defer quiet.Close()
	quietToken := h.token
	h.token = root
	loud, err := h.tenant(ctx, "loud")
	if err != nil {
		return nil, err
	}
	length := 20 * time.Second
	if *count > 0 {
		length = time.Second
	}
	alone, err := h.steady(ctx, quiet, noop, hundred, 10, length)
	if err != nil {
		return nil, err
	}
	flooding := make(chan error, 1)
	n, begin := number(1_000_000), time.Now()
	took := time.Duration(0)
	go func() {
		err := h.flood(ctx, loud)
		if err == nil {
			took, err = h.settledAt(ctx, begin, time.Second/2) // each look takes long among a million runs
		}
		flooding <- err
	}()
	var waits []time.Duration
	for {
		tok := h.token
		h.token = quietToken
		some, err := h.steady(ctx, quiet, noop, hundred, 10, time.Second)
		if err != nil {
			return nil, err
		}
		h.token = tok
		waits = append(waits, some...)
		select {
		case err := <-flooding:
			return map[string]float64{"jobs": float64(len(waits)), "flood": float64(n), "flood_s": took.Seconds(), "alone_p50_ms": percentile(alone, .5), "alone_p99_ms": percentile(alone, .99),
				"start_p50_ms": percentile(waits, .5), "start_p99_ms": percentile(waits, .99), "start_max_ms": percentile(waits, 1)}, err
		default:
		}
	}
}

// firstToken waits for the token that the server writes at its first start, and uses it.
func (h *fixture) firstToken(ctx context.Context) error {
	for ctx.Err() == nil {
		if raw, err := os.ReadFile(filepath.Join(h.dir, "data", "admin.token")); err == nil {
			h.token = strings.TrimSpace(string(raw))
			if _, err := h.get("/api/v1/whoami"); err == nil {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the server granted no first token")
}
