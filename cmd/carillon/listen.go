package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
)

// morePorts is how many ports are tried after one that is in use.
const morePorts = 50

// listen opens an address. If its port is taken and p is movable, it uses the next free one and prints that.
func (p *process) listen(addr, flag string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, usage("invalid %s %s: want host:port, such as 127.0.0.1:8080", flag, addr)
	}
	first, err := strconv.Atoi(port)
	if err != nil || first < 0 || first > 65535 {
		return nil, usage("invalid %s %s: want a port from 0 to 65535", flag, addr)
	}
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l, nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	if !p.movable {
		return nil, fmt.Errorf("%s is in use by another program: stop it, or choose another address with %s", addr, flag)
	}
	for next := first + 1; next <= min(first+morePorts, 65535); next++ {
		if l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(next))); err == nil {
			fmt.Fprintf(p.out, "port %d is in use, using %d instead; choose one with %s\n", first, next, flag)
			return l, nil
		}
	}
	return nil, fmt.Errorf("%s and the %d ports after it are in use: choose another address with %s", addr, morePorts, flag)
}

// isTerminal reports whether a file is a terminal.
func isTerminal(w io.Writer) bool { return terminal(w) }

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// red colours text for a terminal.
func red(w io.Writer, text string) string {
	if !isTerminal(w) || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[1;31m" + text + "\x1b[0m"
}

// greet prints the addresses in one write.
func (p *process) greet(page, nats string) {
	data := p.cfg.Data
	if p.cfg.Memory {
		data = red(p.out, "in memory: nothing survives the end of this process")
	}
	if p.cfg.Store != "" {
		data = withoutUsers(p.cfg.Store)
	}
	fmt.Fprintf(p.out, "\n  Carillon %s\n\n  page   %s\n  bus    %s\n  data   %s\n", p.name, page, nats, data)
	if p.cfg.authenticates() {
		fmt.Fprintf(p.out, "  auth   on: authentication required\n")
	}
	if line := p.cfg.httpJobsLine(); line != "" {
		fmt.Fprintf(p.out, "  http   jobs %s\n", line)
	}
	fmt.Fprintln(p.out)
}
