package carillon_test

import (
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/carillon-scheduler/carillon"
	_ "github.com/carillon-scheduler/carillon/client"
	_ "github.com/carillon-scheduler/carillon/embed"
	_ "github.com/carillon-scheduler/carillon/jobs"
	_ "github.com/carillon-scheduler/carillon/jobs/quartztrigger"
	_ "github.com/carillon-scheduler/carillon/jobs/schedule"
	_ "github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog/hashicorp"
	_ "github.com/carillon-scheduler/carillon/outbox"
	_ "github.com/carillon-scheduler/carillon/worker"
	_ "github.com/carillon-scheduler/carillon/worker/workertest"
)

// afterImports is what imports have changed for the whole process, before any test runs.
var afterImports = globals()

// globals lists what differs from a program that imports only the standard library.
func globals() (changed []string) {
	changes := func(is bool, format string, args ...any) {
		if is {
			changed = append(changed, fmt.Sprintf(format, args...))
		}
	}
	changes(log.Flags() != log.LstdFlags, "flags of package log: %d", log.Flags())
	changes(log.Prefix() != "", "prefix of package log: %q", log.Prefix())
	changes(log.Writer() != os.Stderr, "output of package log: %T", log.Writer())
	changes(fmt.Sprintf("%T", slog.Default().Handler()) != "*slog.defaultHandler", "handler of package slog: %T", slog.Default().Handler())
	// net/http/pprof, expvar, golang.org/x/net/trace and metrics libraries register these.
	for _, at := range []string{"/", "/debug/pprof/", "/debug/vars", "/debug/requests", "/debug/events", "/metrics", "/healthz"} {
		r, err := http.NewRequest(http.MethodGet, at, nil)
		if err != nil {
			panic(err)
		}
		_, pattern := http.DefaultServeMux.Handler(r)
		changes(pattern != "", "http.DefaultServeMux serves %s", pattern)
	}
	changes(http.DefaultClient.Transport != nil || http.DefaultClient.Timeout != 0, "http.DefaultClient: %+v", http.DefaultClient)
	transport, ok := http.DefaultTransport.(*http.Transport)
	changes(!ok || transport.TLSClientConfig != nil || transport.Proxy == nil, "http.DefaultTransport: %+v", http.DefaultTransport)
	changes(net.DefaultResolver.PreferGo || net.DefaultResolver.Dial != nil, "net.DefaultResolver: %+v", net.DefaultResolver)
	changes(time.Local.String() != "Local", "time.Local: %v", time.Local)
	flag.VisitAll(func(f *flag.Flag) { // -update is ours
		changes(!strings.HasPrefix(f.Name, "test.") && f.Name != "update", "flag -%s", f.Name)
	})
	changes(runtime.NumGoroutine() > 1, "%d goroutines", runtime.NumGoroutine())
	return changed
}

// byTheServer is what nats-server changes in a program that imports embed; nothing can take it back without taking it
// from a program that wants it. The package comment of embed warns of it.
var byTheServer = []string{"http.DefaultServeMux serves GET /debug/pprof/", "http.DefaultServeMux serves GET /debug/vars"}

// A program that imports a package of the public API keeps its own logger, handlers, flags and clients.
func TestImportingChangesNothingGlobal(t *testing.T) {
	for _, c := range afterImports {
		if !slices.Contains(byTheServer, c) {
			t.Error("an import changes: ", c)
		}
	}
	imported := read(t, "imports_test.go")
	for _, dir := range public {
		if !strings.Contains(imported, "_ \""+path.Join(module, dir)+"\"\n") {
			t.Errorf("this test does not import package %s", dir)
		}
	}
}
