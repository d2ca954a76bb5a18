//go:build nextrules

// Command next is a client that knows the next version of the rules: it makes runs with a note, and changes and reads
// it.
//
//	next <nats URL> make <note> | change <run> <note> | read <run>
//
// It prints the run and its note, or the refusal.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: next <nats URL> make <note> | change <run> <note> | read <run>")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Client, Name: "next"}
	b, err := natsbus.Connect(ctx, args[0], natsbus.Config{As: as})
	if err != nil {
		return err
	}
	defer b.Close()
	store := busstore.New(b, as)
	id := jobs.NewID(time.Now())
	if args[1] != "make" {
		if id, err = jobs.ParseID(args[2]); err != nil {
			return err
		}
	}
	switch args[1] {
	case "make":
		k := kernel.Create{ID: id, Key: "process.plain", Delay: 24 * time.Hour}
		k.Note = args[2]
		err = apply(ctx, store, k)
	case "change":
		err = apply(ctx, store, kernel.Annotate{ID: id, Note: args[3]})
	}
	if err != nil {
		return err
	}
	in, err := store.Run(ctx, jobs.DefaultTenant, id)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s\n", id, in.Note)
	return nil
}

func apply(ctx context.Context, s metastore.Store, k kernel.Command) error {
	return s.Apply(ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "client:next", Command: k}})[0].Err
}
