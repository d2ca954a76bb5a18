//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a program that runs, repeatedly, under one name. Its output goes to one file.
type process struct {
	name string
	path string
	args []string
	env  []string
	log  string

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the one that runs is gone
	err    error         // how it ended, after that
	frozen bool
}

// newProcess describes one; it does not run yet.
func newProcess(dir, name, path string, env []string, args ...string) *process {
	return &process{name: name, path: path, args: args, env: env, log: filepath.Join(dir, name+".log")}
}

// start starts it. Its environment has no settings of ours but those given, and it does not outlive us.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has it
	cmd := exec.Command(p.path, p.args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "CARILLON_") || strings.HasPrefix(e, saboteur+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.frozen = cmd, ended, false
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(ended)
	}()
	return nil
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// lives reports whether it runs; a frozen one does.
func (p *process) lives() bool {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if ended == nil {
		return false
	}
	select {
	case <-ended:
		return false
	default:
		return true
	}
}

// over is how it ended.
func (p *process) over() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// kill is kill -9. It returns when the process is gone.
func (p *process) kill() {
	if p != nil && p.signal(syscall.SIGKILL) == nil { // it may not have begun
		<-p.ended
	}
}

func (p *process) signal(s os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return errors.New(p.name + " does not run")
	}
	return p.cmd.Process.Signal(s)
}

// freeze stops it as a laptop's lid does, until thaw.
func (p *process) freeze() error {
	err := p.signal(syscall.SIGSTOP)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = err == nil
	return err
}

func (p *process) thaw() {
	_ = p.signal(syscall.SIGCONT)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = false
}

// stop signals it to stop, and kills it after a timeout. It returns how long that took, and whether the process stopped
// by itself.
func (p *process) stop(within time.Duration) (took time.Duration, well bool) {
	began := time.Now()
	if p.signal(syscall.SIGTERM) != nil {
		return 0, true
	}
	select {
	case <-p.ended:
		return time.Since(began), true
	case <-time.After(within):
		p.kill()
		return time.Since(began), false
	}
}

// port returns free ports, below those that the kernel gives to outgoing connections: a process leaves its address and
// returns to it, and meanwhile no connection may get it.
type ports struct{ next int }

// block is so many ports in a row.
func (p *ports) block(n int) (first int, err error) {
next:
	for range 1000 {
		first = p.next
		if p.next += n; p.next > 31_000 {
			p.next = 12_000
		}
		for i := range n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+i))
			if err != nil {
				continue next
			}
			_ = l.Close()
		}
		return first, nil
	}
	return 0, errors.New("no ports are free")
}

func at(host string, port int) string { return fmt.Sprintf("%s:%d", host, port) }
