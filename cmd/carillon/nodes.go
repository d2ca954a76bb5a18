package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// carillon dev --nodes starts a whole cluster to look at, and to kill: each node and each worker is a process of its
// own.

// cast is that cluster. Its ports are those of the configuration and the ones that follow, each time the same, because
// nodes remember each other.
type cast struct {
	cfg     *config
	nodes   int
	program string
	out     io.Writer

	members sync.WaitGroup
	mu      sync.Mutex
	running map[string]*os.Process // nil once all are being stopped
}

const (
	castData    = "./.carillon-cluster"
	castWorkers = 2
	castAddr    = "127.0.0.1:7946" // of the first node, for the others; each has two
	castReady   = 60 * time.Second
	castInvites = 30 * time.Second // how long invite retries without a leader
	mostCast    = 7
)

// check refuses settings that a demo cluster does not support.
func (c *cast) check() error {
	switch {
	case c.nodes < 1 || c.nodes > mostCast:
		return usage("invalid --nodes %d: want 1 to %d", c.nodes, mostCast)
	case c.cfg.Memory || c.cfg.Store != "" || c.cfg.URL != "" || c.cfg.Cluster != clusterConfig{Addr: c.cfg.Cluster.Addr}:
		return usage("--nodes starts nodes with a store on disk and built-in NATS servers: remove memory, store.url, nats.url and cluster.* (except cluster.addr)")
	case c.cfg.authenticates():
		return usage("--nodes runs on loopback without authentication: remove addresses and auth")
	}
	if c.cfg.values["data"].origin == "default" {
		c.cfg.Data = castData
	}
	return nil
}

// after returns an address with a port n higher.
func after(addr string, n int) string {
	host, port, _ := net.SplitHostPort(addr) // checked with the settings
	first, _ := strconv.Atoi(port)
	return net.JoinHostPort(host, strconv.Itoa(first+n))
}

// run starts everything and waits for a signal, or until no process runs.
func (c *cast) run(ctx context.Context) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if c.program, err = os.Executable(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.cfg.Data, 0o700); err != nil {
		return err
	}
	c.running = map[string]*os.Process{}
	ended := make(chan struct{})
	defer func() { c.stop(); <-ended }()
	err = c.begin(ctx)
	go func() { c.members.Wait(); close(ended) }()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	select {
	case <-ctx.Done():
		fmt.Fprintln(c.out, "stopping")
	case <-ended:
		return errors.New("all processes of the cluster have ended; see the logs in " + c.cfg.Data)
	}
	return nil
}

// begin starts the nodes, has them join, and starts the workers.
func (c *cast) begin(ctx context.Context) error {
	fmt.Fprintf(c.out, "\n  Carillon cluster\n\n")
	grown := fileExists(filepath.Join(c.cfg.Data, "n2", raftstore.RowsFolder, "node.json"))
	var buses []string
	for i := range c.nodes {
		buses = append(buses, "nats://"+after(c.cfg.NATS, i))
		file := ""
		if i > 0 && !grown {
			if err := c.await(ctx, i-1); err != nil {
				return err
			}
			file = filepath.Join(c.cfg.Data, fmt.Sprintf("n%d.token", i+1))
			if err := c.invite(ctx, file); err != nil {
				return err
			}
		}
		if err := c.node(i, file); err != nil {
			return err
		}
	}
	for i := range c.nodes {
		if err := c.await(ctx, i); err != nil {
			return err
		}
	}
	for i := range castWorkers {
		name := fmt.Sprintf("w%d", i+1)
		if err := c.start(name, "demo-worker", "--name", name, "--nats", strings.Join(buses, ",")); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.out, "  data   %s, with the log of each\n\n  Any page shows everything. Kill a node and watch: the others continue. Ctrl-C stops all.\n\n", c.cfg.Data)
	return nil
}

func (c *cast) node(i int, join string) error {
	name := fmt.Sprintf("n%d", i+1)
	for _, addr := range []string{after(c.cfg.HTTP, i), after(c.cfg.NATS, i)} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("%s is in use by another program: stop it, or choose other addresses with --http and --nats-addr", addr)
		}
		_ = l.Close()
	}
	args := []string{"server", "--node", name, "--data", filepath.Join(c.cfg.Data, name), "--http", after(c.cfg.HTTP, i), "--nats-addr", after(c.cfg.NATS, i),
		"--cluster", after(cmp.Or(c.cfg.Cluster.Addr, castAddr), 2*i), "--log-level", c.cfg.LogLevel}
	if join != "" {
		args = append(args, "--join-file", join)
	}
	if err := c.start(name, args...); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pid := 0
	if p := c.running[name]; p != nil {
		pid = p.Pid
	}
	fmt.Fprintf(c.out, "  %s     http://%s   bus nats://%s   process %d\n", name, after(c.cfg.HTTP, i), after(c.cfg.NATS, i), pid)
	return nil
}

// start starts a process with its output in a file, and prints a line if it ends by itself.
func (c *cast) start(name string, args ...string) error {
	path := filepath.Join(c.cfg.Data, name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(c.program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	apart(cmd)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		return errors.Join(errStopped, log.Close())
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	c.running[name] = cmd.Process
	c.members.Go(func() {
		err := cmd.Wait()
		_ = log.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.running != nil {
			delete(c.running, name)
			fmt.Fprintf(c.out, "  %s has ended (%v); see %s\n", name, ended(err), path)
		}
	})
	return nil
}

func ended(err error) any {
	if err == nil {
		return "done"
	}
	return err
}

// stop signals all processes to stop; it kills a process that cannot be signalled.
func (c *cast) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.running {
		if p.Signal(syscall.SIGTERM) != nil {
			_ = p.Kill()
		}
	}
	c.running = nil
}

// await waits until a node is ready.
func (c *cast) await(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, castReady)
	defer cancel()
	name := fmt.Sprintf("n%d", i+1)
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+after(c.cfg.HTTP, i)+"/readyz", nil)
		if err != nil {
			return err
		}
		if a, err := http.DefaultClient.Do(r); err == nil {
			_ = a.Body.Close()
			if a.StatusCode == http.StatusOK {
				return nil
			}
		}
		c.mu.Lock()
		gone := c.running[name] == nil
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s is not ready; its log is in %s", name, c.cfg.Data)
		case <-time.After(50 * time.Millisecond):
		}
		if gone {
			return fmt.Errorf("node %s did not start; its log is in %s", name, c.cfg.Data)
		}
	}
}

// invite requests an invitation from the first node. It retries while there is no leader, for example after a pause of
// the machine: an unused invitation does no harm.
func (c *cast) invite(ctx context.Context, file string) error {
	var a *http.Response
	for asking := time.Now(); ; {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.cfg.HTTP+"/api/v1/cluster/invitations", nil)
		if err != nil {
			return err
		}
		if a, err = http.DefaultClient.Do(r); err != nil {
			return fmt.Errorf("invite a node: %w", err)
		}
		if a.StatusCode != http.StatusServiceUnavailable && a.StatusCode != http.StatusGatewayTimeout || time.Since(asking) > castInvites {
			break
		}
		_ = a.Body.Close()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusCreated {
		return fmt.Errorf("invite a node: %s responds %s; is that another program?", c.cfg.HTTP, a.Status)
	}
	var i api.Invitation
	if err := json.NewDecoder(a.Body).Decode(&i); err != nil {
		return fmt.Errorf("invite a node: %w", err)
	}
	return os.WriteFile(file, []byte(i.Token+"\n"), 0o600)
}

// newDemoWorker is a worker with the jobs of carillon dev, for the processes that dev --nodes starts.
func newDemoWorker() *cobra.Command {
	var name, nats string
	c := &cobra.Command{Use: "demo-worker", Short: "Run the jobs of carillon dev", Hidden: true, Args: noArgs,
		Example: "  carillon demo-worker --name w1 --nats nats://127.0.0.1:4222,nats://127.0.0.1:4223",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			w, err := carillon.NewWorker(nats, worker.Config{App: "demo", Name: name, Slots: 8, Logger: newLogger(&config{LogLevel: "info", LogJSON: "text"}, os.Stderr)}, demo{}.jobs()...)
			if err != nil {
				return err
			}
			return w.Run(ctx)
		}}
	c.Flags().StringVar(&name, "name", "w1", "name of the worker")
	c.Flags().StringVar(&nats, "nats", "nats://127.0.0.1:4222", "addresses of the bus, comma-separated")
	return c
}
