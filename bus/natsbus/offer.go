package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
)

// stretch is how many messages are sent before waiting for the server's answer to the last of them. A server drops
// messages when ten thousand wait for its stream.
const stretch = 2048

// offerTime is how long a stream in memory may take to answer.
const offerTime = 3 * time.Second

// scratch holds buffers for messages: the connection copies what it sends.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Offer sends all lists, and waits for the answer to the last one: a stream stores in order, so it has the others.
func (b *Bus) Offer(ctx context.Context, queue string, lane bus.Lane, lists ...[]bus.Offer) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if err := b.leads("offer"); err != nil {
		return err
	}
	term, ours := termOf(queue)
	if !ours {
		return fmt.Errorf("offer to queue %q: %w", queue, bus.ErrNoReceiver)
	}
	if !b.link.connected() {
		return errNoConnection
	}
	err := b.ensure(ctx, queue, term, lane)
	if err == nil {
		err = b.offer(ctx, queue, offerSubject(term, lane), lists)
	}
	if errors.Is(err, bus.ErrNoReceiver) && len(lists) > 0 && b.link.connected() {
		// The stream has gone since its consumer was made. Once more, from the start.
		b.forgetMade()
		if err = b.ensure(ctx, queue, term, lane); err == nil {
			err = b.offer(ctx, queue, offerSubject(term, lane), lists)
		}
	}
	if err != nil {
		return fmt.Errorf("offer to queue %s: %w", queue, err)
	}
	return nil
}

func (b *Bus) offer(ctx context.Context, queue, subject string, lists [][]bus.Offer) error {
	if len(lists) == 0 {
		return nil
	}
	limited, done := b.briefly(ctx, subject, offerTime)
	defer done()
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	for i, list := range lists {
		message, err := appendList((*buf)[:0], list)
		if err != nil {
			return err
		}
		*buf = message
		if i+1 < len(lists) && (i+1)%stretch != 0 {
			if err := b.nc.Publish(subject, message); err != nil {
				return b.why(ctx, limited, err)
			}
			continue
		}
		answer, err := b.inbox.request(limited, b.nc, subject, inboxPrefix(b.as), message)
		if err != nil {
			return b.why(ctx, limited, err)
		}
		if err := kept(answer.Data, queue); err != nil {
			return err
		}
	}
	return nil
}

// kept reads a stream's answer: whether the message is stored, and in the right place.
func kept(answer []byte, queue string) error {
	var ack struct {
		Stream string `json:"stream"`
		Error  *struct {
			Text string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(answer, &ack); {
	case err != nil:
		return fmt.Errorf("the stream's answer %.60q is invalid: %w", answer, err)
	case ack.Error != nil:
		return fmt.Errorf("the stream does not take offers: %s", ack.Error.Text)
	case ack.Stream != queue:
		return fmt.Errorf("stream %s took the offers: %w", ack.Stream, bus.ErrNoReceiver)
	}
	return nil
}
