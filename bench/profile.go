package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profiled does it under the profiler, if one was asked for.
func profiled(name string, do func() error) error {
	if *profile == "" {
		return do()
	}
	if err := os.MkdirAll(*profile, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(*profile, name+".pprof"))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	err = do()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close(), allocated(name))
}

// allocated writes what the process has allocated since its start.
func allocated(name string) error {
	f, err := os.Create(filepath.Join(*profile, name+"-allocs.pprof"))
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}

// profile has the server look at itself for 20 seconds.
func (h *fixture) profile() {
	if *profile == "" {
		return
	}
	for name, address := range map[string]string{"server": h.debug, "worker": h.workerDebug} {
		if address == "" {
			continue
		}
		h.looked.Go(func() {
			for _, what := range []string{"profile?seconds=20", "allocs"} {
				if err := fetch(name, address, what); err != nil {
					fmt.Fprintf(os.Stderr, "bench: profile of the %s: %v\n", name, err)
				}
			}
		})
	}
}

// fetch writes a profile that a process serves.
func fetch(name, address, what string) error {
	r, err := http.Get("http://" + address + "/debug/pprof/" + what)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if what == "allocs" {
		name += "-allocs"
	}
	f, err := os.Create(filepath.Join(*profile, name+".pprof"))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r.Body)
	return errors.Join(err, f.Close())
}
