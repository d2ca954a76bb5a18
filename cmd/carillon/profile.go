package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/carillon-scheduler/carillon/api"
)

// profile serves the profiler until ctx ends, if there is an address for it. It has one of its own, on this machine
// only: what is in memory holds arguments and tokens.
func (p *process) profile(ctx context.Context) error {
	if p.cfg.Debug == "" {
		<-ctx.Done()
		return nil
	}
	l, err := p.listen(p.cfg.Debug, "--debug-addr")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	server := api.NewServer(api.Hosts(nil, api.Guard(p.log, "", mux)), p.log)
	server.WriteTimeout = 10 * time.Minute // a profile takes as long as one asks for
	fmt.Fprintf(p.out, "  profiler: http://%s/debug/pprof/\n", l.Addr())
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the profiler: %w", err)
	}
	return nil
}
