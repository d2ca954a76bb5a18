package cli_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/carillon/cli"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/ops"
)

// shared is a buffer that is read while it is written.
type shared struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// background runs the program until end stops it; end returns the exit code.
func (h *fixture) background(t *testing.T, terminal bool, args ...string) (out, errs *shared, end func() int) {
	t.Helper()
	out, errs = new(shared), new(shared)
	root := rootOf(cli.Config{Terminal: func(any) bool { return terminal }, Getenv: func(name string) string { return h.env()[name] }})
	root.SetOut(out)
	root.SetErr(errs)
	root.SetArgs(args)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	end = sync.OnceValue(func() int {
		cancel()
		return cli.ExitCode(<-ended)
	})
	t.Cleanup(func() { end() })
	return out, errs, end
}

// What is watched is shown again when it has changed: in its place on a terminal, else below.
func TestWatch(t *testing.T) {
	tests.Long(t)
	h := open(t)
	out, _, end := h.background(t, false, "jobs", "list", "--watch", "--search", "pack")
	screen, _, endScreen := h.background(t, true, "jobs", "list", "--watch", "--search", "pack")
	documents, _, endDocuments := h.background(t, false, "jobs", "show", "shop.pack", "--watch", "-o", "json")
	for _, s := range []*shared{out, screen, documents} {
		until(t, "the job is there", func() bool { return strings.Contains(s.String(), "shop.pack") })
	}
	if strings.Contains(out.String()+screen.String(), "disabled") {
		t.Fatal("it is disabled before it is")
	}
	if _, err := h.Ops().Edit(t.Context(), ops.Who{Actor: "person:test", Role: ops.Admin}, kernel.Edit{Key: "shop.pack", Set: kernel.Settings{Disabled: new(true)}}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*shared{out, screen} {
		until(t, "the change is shown", func() bool { return strings.Contains(s.String(), "disabled") })
	}
	seen := h.asked.Load()
	until(t, "the change is shown", func() bool { return strings.Contains(documents.String(), `"disabled": true`) })
	// Changes elsewhere do not print the view again.
	all, _, endAll := h.background(t, false, "jobs", "list", "--watch")
	until(t, "all are there", func() bool { return strings.Contains(all.String(), "shop.wait") })
	if _, err := h.Ops().Edit(t.Context(), ops.Who{Actor: "person:test", Role: ops.Admin}, kernel.Edit{Key: "shop.wait", Set: kernel.Settings{Name: new("seen")}}); err != nil {
		t.Fatal(err)
	}
	until(t, "they have looked again", func() bool { return h.asked.Load() > seen+6 })
	for _, end := range []func() int{end, endScreen, endDocuments, endAll} {
		if code := end(); code != cli.Interrupted {
			t.Errorf("exit code %d, want %d", code, cli.Interrupted)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("what is no terminal is steered: %q", out)
	}
	// The view had two lines: the heads and the job.
	if !strings.Contains(screen.String(), "\x1b[2A\x1b[J") || !strings.Contains(screen.String(), "\x1b[2mdisabled\x1b[0m") {
		t.Errorf("the screen got %q", screen)
	}
	if n := strings.Count(documents.String(), "\n}\n"); n != 2 {
		t.Errorf("%d documents of two states:\n%s", n, documents)
	}
}

// Interrupting a wait does not stop the run.
func TestStopFollowing(t *testing.T) {
	h := open(t)
	out, errs, end := h.background(t, false, "jobs", "trigger", "shop.wait", "--follow")
	until(t, "its line is there", func() bool { return strings.Contains(out.String(), "long") })
	if code := end(); code != cli.Interrupted {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(errs.String(), "continues") {
		t.Errorf("no hint about the run: %s", errs)
	}
	list, _, _ := call{env: h.env()}.run("runs", "list", "--job", "shop.wait")
	if !strings.Contains(list, "Processing") {
		t.Errorf("it has not gone on:\n%s", list)
	}
}

// On a terminal, the program asks for what the flags do not give.
func TestDeleteAsks(t *testing.T) {
	h := open(t)
	for _, c := range []struct {
		in, want string
		code     int
	}{
		{"n\n", "nothing was done", 1},
		{"", "use --yes", 2},
		{"y\nperhaps\n", "cancel, finish", 2},
		{"y\ncancel\n", "shop.pack is deleted; 1 runs cancelled", 0},
	} {
		if c.in == "n\n" {
			if _, errs, code := (call{env: h.env()}).run("jobs", "trigger", "shop.pack", "--in", "24h"); code != 0 {
				t.Fatal(errs)
			}
		}
		out, errs, code := call{env: h.env(), in: c.in, terminal: true}.run("jobs", "delete", "shop.pack")
		if code != c.code || !strings.Contains(out+errs, c.want) || !strings.Contains(errs, "Delete shop.pack? [y/N]") {
			t.Errorf("%q: exit code %d, want %d and %q: %s%s", c.in, code, c.code, c.want, out, errs)
		}
	}
}
