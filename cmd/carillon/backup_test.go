package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A copy of the data directory of a server that was stopped is a server: with its runs, its tokens and its jobs.
func TestBackup(t *testing.T) {
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "restored")
	args := []string{"server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--data"}
	p := start(t, append(args, dir)...)
	hire(t, p.bus)
	packs(p)
	p.end()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	p = start(t, append(args, dir)...)
	hire(t, p.bus)
	p.post("/api/v1/jobs/shop.pack/trigger", `{}`)
	p.get("/api/v1/runs?job=shop.pack&state=Succeeded", succeeded(2))
	p.end()

	p = start(t, append(args, copied)...)
	p.get("/api/v1/jobs/shop.pack", ok)
	p.get("/api/v1/runs?job=shop.pack&state=Succeeded", func(_ int, body []byte) bool { return strings.Count(string(body), `"id":"`) == 1 })
	p.end()
}
