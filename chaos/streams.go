//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// deleteStreams deletes all streams of a NATS server under those who use them.
func deleteStreams(ctx context.Context, url string) (gone int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := nats.Connect(url, nats.Timeout(3*time.Second))
	if err != nil {
		return 0, fmt.Errorf("wipe the streams: %w", err)
	}
	defer c.Close()
	js, err := jetstream.New(c)
	if err != nil {
		return 0, err
	}
	names := js.StreamNames(ctx)
	var all []string
	for name := range names.Name() {
		all = append(all, name)
	}
	for _, name := range all {
		if err := js.DeleteStream(ctx, name); err == nil {
			gone++
		}
	}
	return gone, names.Err()
}
