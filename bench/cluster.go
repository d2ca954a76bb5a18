package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// grow starts one more node, which the first one invites. It has a copy of the rows, votes, and has a NATS server.
func (h *fixture) grow(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.http+"/api/v1/cluster/invitations", nil)
	if err != nil {
		return err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("invite a node: %w", err)
	}
	defer a.Body.Close()
	var invitation struct{ Token string }
	if err := json.NewDecoder(a.Body).Decode(&invitation); err != nil || a.StatusCode != http.StatusCreated {
		return fmt.Errorf("invite a node: %s %w", a.Status, err)
	}
	name := fmt.Sprintf("n%d", len(h.others)+2)
	file := filepath.Join(h.dir, name+".token")
	if err := os.WriteFile(file, []byte(invitation.Token), 0o600); err != nil {
		return err
	}
	web, bus := freeAddress(), freeAddress()
	c := exec.CommandContext(ctx, h.program, "server", "--node", name, "--http", web, "--nats-addr", bus, "--cluster", freePair(),
		"--data", filepath.Join(h.dir, name), "--join-file", file)
	c.Env, c.SysProcAttr = append(os.Environ(), "CARILLON_LOG_LEVEL=warn", "CARILLON_LIMITS_JOBS_PER_APP=1000000"), bound()
	if *verbose {
		c.Stderr, c.Stdout = os.Stderr, os.Stderr
	}
	if err := c.Start(); err != nil {
		return err
	}
	h.others, h.buses = append(h.others, c), append(h.buses, bus)
	return ready(ctx, web+"/readyz", c)
}

// freePair is an address for other nodes: they come to this port and to the next. Both are below those that the system
// gives to outgoing connections.
func freePair() string {
	for {
		port := 20_000 + rand.IntN(10_000)
		first, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		second, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		_ = first.Close()
		if err == nil {
			_ = second.Close()
			return first.Addr().String()
		}
	}
}

// url is the address of the bus for workers and clients: all nodes.
func (h *fixture) url() string {
	return "nats://" + strings.Join(append([]string{h.nats}, h.buses...), ",nats://")
}
