//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// dialler finds the process at the other end of a local connection. Each node has one address for all others, so a wire
// between two nodes must be cut by its dialler.
func dialler(among func() []*process) func(net.Conn) string {
	return func(c net.Conn) string {
		theirs, ok := c.RemoteAddr().(*net.TCPAddr)
		ours, ok2 := c.LocalAddr().(*net.TCPAddr)
		if !ok || !ok2 {
			return ""
		}
		inode := socketOf(theirs, ours)
		if inode == "" {
			return ""
		}
		for _, p := range among() {
			if holds(p.pid(), inode) {
				return p.name
			}
		}
		return ""
	}
}

// socketOf is the inode of the socket between these ends, "" if there is none. Both ends count: a port may be that of
// several connections, to other places, of which some have ended. The kernel's list is not read in one piece, so that
// a line can be missed while others come and go: what is missing is looked for again.
func socketOf(local, remote *net.TCPAddr) string {
	near, far := hexAddress(local), hexAddress(remote)
	for range 5 {
		list, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			return ""
		}
		for line := range strings.Lines(string(list)) {
			if f := strings.Fields(line); len(f) > 9 && f[1] == near && f[2] == far {
				return f[9]
			}
		}
	}
	return ""
}

// hexAddress is an address as the kernel's list has it; "" for one that is not IPv4, which is in no line.
func hexAddress(a *net.TCPAddr) string {
	ip := a.IP.To4()
	if ip == nil {
		return ""
	}
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
}

// holds reports whether a process has a socket open.
func holds(pid int, inode string) bool {
	if pid == 0 {
		return false
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	names, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, n := range names {
		if to, err := os.Readlink(filepath.Join(dir, n.Name())); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
