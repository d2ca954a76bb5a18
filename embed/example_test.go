package embed_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A scheduler in a program, and a run whose result is waited for.
func ExampleStart() {
	type order struct{ Item string }
	ship := jobs.NewTriggered(jobs.TriggeredFunc[order](func(ctx context.Context, o order) error {
		return jobs.Result(ctx, "shipped "+o.Item)
	}), jobs.Options{Key: "shop.ship"})

	ctx := context.Background()
	s, err := embed.Start(ctx, embed.Config{}, ship)
	if err != nil {
		log.Fatal(err)
	}
	run, err := jobs.Trigger[order]("shop.ship").Enqueue(ctx, s.Client(), order{"a bell"})
	if err != nil {
		log.Fatal(err)
	}
	done, err := s.Client().Wait(ctx, run.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.State, string(done.Result))
	if err := s.Stop(); err != nil {
		log.Fatal(err)
	}
	// Output: Succeeded "shipped a bell"
}

// A program whose jobs survive a restart; it runs until a signal.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	clean := jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
		jobs.Log(ctx).Info("cleaning up")
		return nil
	}), jobs.Options{Key: "shop.clean-up", Cron: "0 0 3 * * *", TimeZone: "Europe/Berlin"})
	if err := embed.Run(ctx, embed.Config{Dir: "./data"}, clean); err != nil {
		log.Fatal(err)
	}
}

// The live page beside a program's own pages.
func ExampleScheduler_Handler() {
	s, err := embed.Start(context.Background(), embed.Config{Base: "/jobs"},
		jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "shop.tick", Every: time.Minute}))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/jobs/", s.Handler())
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}

// An order and the run that ships it are stored in one transaction: both exist, or none.
func ExampleScheduler_EnqueueTx() {
	type order struct{ Item string }
	ship := jobs.Trigger[order]("shop.ship")
	add := func(ctx context.Context, db *sql.DB, s *embed.Scheduler, o order) error { // s has db's database as its Database
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after a commit
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ($1)", o.Item); err != nil {
			return err
		}
		r, err := ship.Request(o)
		if err != nil {
			return err
		}
		if err := s.EnqueueTx(ctx, tx, r); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = add
}
