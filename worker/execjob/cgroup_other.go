//go:build !linux

package execjob

import (
	"errors"
	"log/slog"
	"syscall"

	"github.com/carillon-scheduler/carillon/execspec"
)

// cgroups and cgroup exist on Linux only.
type (
	cgroups struct{}
	cgroup  struct{}
)

func openCgroups(string) (*cgroups, error) { return nil, errors.New("cgroups need Linux") }

func (*cgroups) child(string, execspec.Limits, *slog.Logger) (*cgroup, error) { return nil, nil }
func (*cgroups) close() error                                                 { return nil }

func (*cgroup) hold(*syscall.SysProcAttr) {}
func (*cgroup) kill()                     {}
func (*cgroup) remove()                   {}
func (*cgroup) outOfMemory() error        { return nil }
