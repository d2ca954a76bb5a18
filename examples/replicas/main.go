// Command replicas is a program of which you start several copies on one database: each enqueues and runs jobs, and any
// of them may be stopped. docs/replicas.md explains it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

// mail is what the job sends.
type mail struct {
	To string `json:"to"`
}

var sendJob = jobs.Trigger[mail]("mail.send")

// send is the handler.
func send(ctx context.Context, m mail) error {
	jobs.Log(ctx).Info("mail is sent", "to", m.To)
	return jobs.Result(ctx, fmt.Sprintf("sent by process %d", os.Getpid()))
}

func main() {
	database := flag.String("database", "", "URL of the database, such as postgres://carillon:secret@127.0.0.1/carillon")
	address := flag.String("addr", "127.0.0.1:8080", "the address to listen on")
	node := flag.String("node", "", "the name of this copy; default: the machine and the number of the process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *address)
	if err == nil {
		err = run(ctx, listener, *database, *node)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run serves requests until ctx ends: the dashboard at /, and POST /send with to.
func run(ctx context.Context, listener net.Listener, database, node string) error {
	s, err := embed.Start(ctx, embed.Config{Database: database, Node: node, Logger: slog.Default()},
		jobs.NewTriggered(jobs.TriggeredFunc[mail](send), jobs.Options{Key: "mail.send", Retries: 3}))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", s.Handler())
	mux.HandleFunc("POST /send", func(w http.ResponseWriter, r *http.Request) {
		run, err := sendJob.Enqueue(r.Context(), s.Client(), mail{To: r.FormValue("to")})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, run.ID)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	log.Printf("send a mail: curl http://%s/send -d to=ann@example.com", listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	<-ctx.Done()
	err = errors.Join(server.Close(), s.Stop())
	if serving := <-ended; !errors.Is(serving, http.ErrServerClosed) {
		err = errors.Join(err, serving)
	}
	return err
}
