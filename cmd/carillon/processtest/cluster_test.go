//go:build unix

package processtest

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// One command starts a cluster: three nodes, of which any shows all pages, and two workers. It stops all it started.
func TestDevCluster(t *testing.T) {
	tests.Long(t)
	path, err := carillonProgram()
	if err != nil {
		t.Fatal(err)
	}
	web, bus, peers := block(t, 3), block(t, 3), block(t, 6)
	args := []string{"dev", "--nodes", "3", "--data", t.TempDir() + "/data", "--http", web[0], "--nats-addr", bus[0], "--cluster", peers[0]}
	for _, again := range []bool{false, true} { // the second time they know each other
		dev := start(t, "carillon dev --nodes 3", path, nil, args...)
		await(t, "the cluster is ready", func() bool {
			if dev.over() {
				t.Fatalf("it ended with %v", dev.err)
			}
			return dev.out.has("Ctrl-C stops all")
		})
		for _, at := range web {
			h := &fixture{t: t, http: at}
			await(t, at+" shows both workers and all nodes", func() bool {
				status, raw, err := h.ask(http.MethodGet, "/api/v1/cluster", "")
				return err == nil && status == http.StatusOK && decode[api.Cluster](t, raw).Tolerates == 1 && len(get[list[api.Worker]](h, "/api/v1/workers").Items) == 2
			})
			for _, page := range []string{"/", "/jobs", "/runs", "/workers", "/cluster", "/settings"} {
				if body := string(h.do(http.MethodGet, page, "")); !strings.Contains(body, "Leader: ") {
					t.Errorf("%s%s does not show the leader", at, page)
				}
			}
		}
		dev.stop(t, syscall.SIGTERM)
		for _, at := range append(web, bus...) {
			if l, err := net.Listen("tcp", at); err != nil {
				t.Errorf("a process still listens at %s (again: %v)", at, again)
			} else {
				_ = l.Close()
			}
		}
	}
}

// block returns free addresses with consecutive ports.
func block(t *testing.T, n int) []string {
	t.Helper()
next:
	for range 100 {
		first := freeport.Address(t)
		port := 0
		if _, err := fmt.Sscanf(first, "127.0.0.1:%d", &port); err != nil {
			t.Fatal(err)
		}
		var all []string
		for i := range n {
			addr := fmt.Sprintf("127.0.0.1:%d", port+i)
			l, err := net.Listen("tcp", addr)
			if err != nil {
				continue next
			}
			_ = l.Close()
			all = append(all, addr)
		}
		return all
	}
	t.Fatal("no ports are free")
	return nil
}
