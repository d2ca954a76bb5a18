package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Enqueue several runs at once, cancel one, and wait for the others.
func ExampleClient() {
	type letter struct{ To string }
	send := jobs.TriggeredFunc[letter](func(ctx context.Context, l letter) error { return jobs.Result(ctx, "sent to "+l.To) })
	ctx := context.Background()
	s, err := embed.Start(ctx, embed.Config{}, jobs.NewTriggered(send, jobs.Options{Key: "mail.send"}))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Stop()
	c := s.Client() // or carillon.Dial, or in a handler carillon.ClientFrom

	job := jobs.Trigger[letter]("mail.send")
	receipts, err := job.EnqueueAll(ctx, c, []letter{{"Ann"}, {"Bob"}})
	if err != nil {
		log.Fatal(err)
	}
	later, err := job.Enqueue(ctx, c, letter{"Cy"}, jobs.After(time.Hour), jobs.Unique("cy"))
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Cancel(ctx, later.ID, "Cy has moved"); err != nil {
		log.Fatal(err)
	}
	for _, r := range append(receipts, later) {
		run, err := c.Wait(ctx, r.ID)
		var failed *jobs.RunError // it did not succeed
		if err != nil && !errors.As(err, &failed) {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s%s\n", run.State, run.Result, run.Error)
	}
	// Output:
	// Succeeded: "sent to Ann"
	// Succeeded: "sent to Bob"
	// Cancelled: cancelled by client:client: Cy has moved
}
