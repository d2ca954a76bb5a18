//go:build linux

package main

import (
	"bufio"
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
		remote, ok := c.RemoteAddr().(*net.TCPAddr)
		if !ok {
			return ""
		}
		inode := socketOf(remote)
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

// socketOf is the inode of the socket that has this end, "" if there is none.
func socketOf(local *net.TCPAddr) string {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer f.Close()
	ip := local.IP.To4()
	if ip == nil {
		return ""
	}
	want := fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], local.Port)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[1] == want {
			return fields[9]
		}
	}
	return ""
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
