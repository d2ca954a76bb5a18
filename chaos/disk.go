//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// A disk that can be full is a file system in memory of a limited size, mounted where a node keeps its data. Only root
// may mount one.

// diskSize is more than a node writes in an hour of chaos.
const diskSize = 1 << 30

var errNotRoot = errors.New("only root may mount one, so no disk will be full")

// smallDisk gives a node a disk of its own.
func (s *system) smallDisk(n *node) error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	if err := syscall.Mount("tmpfs", n.data, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskSize)); err != nil {
		return err
	}
	n.disk = n.data
	return nil
}

// fill leaves no byte free on a node's disk; clear undoes it.
func (n *node) fill() error {
	f, err := os.Create(n.ballast())
	if err != nil {
		return err
	}
	defer f.Close()
	bytes := make([]byte, 1<<20)
	for len(bytes) > 0 {
		switch _, err := f.Write(bytes); {
		case errors.Is(err, syscall.ENOSPC):
			bytes = bytes[:len(bytes)/2]
		case err != nil:
			return err
		}
	}
	return nil
}

func (n *node) clear() { _ = os.Remove(n.ballast()) }

func (n *node) ballast() string { return filepath.Join(n.disk, "ballast") }

// giveBack takes a node's disk away.
func (s *system) giveBack(n *node) {
	if n.disk == "" {
		return
	}
	if s.keep != "" { // keep its content beside it
		_ = os.CopyFS(filepath.Join(s.dir, "kept-"+n.name), os.DirFS(n.disk))
	}
	if err := syscall.Unmount(n.disk, 0); err != nil {
		_ = syscall.Unmount(n.disk, syscall.MNT_DETACH)
	}
	n.disk = ""
}
