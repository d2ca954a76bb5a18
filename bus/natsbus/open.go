package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	// oldest is the first version of a server with all that the bus needs.
	oldest = "2.10.0"
	// ackWait is after what time an offer that was taken, but neither claimed nor returned, goes to another worker.
	ackWait = 30 * time.Second
	// streamBytes bounds what offers may take of the server's memory. A leader's window is far smaller.
	streamBytes = 64 << 20
	// remadeAfter is how long we believe that a consumer exists. It may be deleted.
	remadeAfter = 10 * time.Second
	// apiTime is how long JetStream may take to make or find something.
	apiTime = 3 * time.Second
	// goneTime is how long the server that keeps an older queue may take to delete it, in a cluster.
	goneTime = 250 * time.Millisecond
)

// made is a consumer that exists.
type made struct{ queue, consumer string }

func streamConfig(term uint64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        streamName(term),
		Description: "Carillon: offers of the leader of term " + strconv.FormatUint(term, 10) + ". It may be deleted at any time: offers are made again.",
		Subjects:    []string{streamSubject(term)},
		Storage:     jetstream.MemoryStorage,
		Retention:   jetstream.WorkQueuePolicy,
		Discard:     jetstream.DiscardOld,
		MaxAge:      time.Hour,
		MaxBytes:    streamBytes,
		Replicas:    1,
	}
}

func consumerConfig(term uint64, l bus.Lane) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       consumerName(l.Tenant, l.App),
		FilterSubject: offerSubject(term, l),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxDeliver:    -1,
		MaxAckPending: -1, // the leader's window bounds what is out; a limit here would only stall an app
		MaxWaiting:    16 << 10,
		MemoryStorage: true,
		Replicas:      1,
	}
}

// Open makes the stream of a term, and deletes those of older terms.
func (b *Bus) Open(ctx context.Context, term uint64) (string, error) {
	if err := b.check(ctx); err != nil {
		return "", err
	}
	if err := b.leads("open a queue"); err != nil {
		return "", err
	}
	name := streamName(term)
	if !b.link.connected() {
		return "", fmt.Errorf("open queue %s: %w", name, errNoConnection)
	}
	if err := b.openTerm(ctx, term); err != nil {
		return "", fmt.Errorf("open queue %s: %w", name, err)
	}
	b.opened.Store(name, term)
	return name, nil
}

func (b *Bus) openTerm(ctx context.Context, term uint64) error {
	limited, done := b.briefly(ctx, api, apiTime)
	defer done()
	if err := b.available(limited); err != nil {
		return b.why(ctx, limited, err)
	}
	if err := b.makeStream(limited, term); err != nil {
		return b.why(ctx, limited, err)
	}
	names := b.js.StreamNames(limited, jetstream.WithStreamListSubject(offerRoot+".>"))
	for stream := range names.Name() {
		old, ours := termOf(stream)
		if !ours || old >= term {
			continue
		}
		b.opened.Delete(stream)
		if err := b.deleteStream(limited, stream); err != nil {
			return b.why(ctx, limited, fmt.Errorf("delete the stream of term %d: %w", old, err))
		}
	}
	if err := names.Err(); err != nil {
		return b.why(ctx, limited, fmt.Errorf("list streams of older terms: %w", err))
	}
	return nil
}

// deleteStream deletes the stream of an older term. In a cluster the server that keeps it may be gone, with the leader
// of that term, and no other answers for it: then the request is sent without waiting.
func (b *Bus) deleteStream(ctx context.Context, name string) error {
	brief, cancel := ctx, func() {}
	if b.nc.ConnectedClusterName() != "" {
		brief, cancel = context.WithTimeout(ctx, goneTime)
	}
	defer cancel()
	err := b.js.DeleteStream(brief, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) || err != nil && brief.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// available returns what is missing for streams to be made at all.
func (b *Bus) available(ctx context.Context) error {
	if v := b.nc.ConnectedServerVersion(); olderThan(v, oldest) {
		return kernel.Refuse(jobs.Unavailable, "the NATS server is of version %s: %s is the oldest that will do", v, oldest)
	}
	_, err := b.js.AccountInfo(ctx)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return kernel.Refuse(jobs.Unavailable, "JetStream is not enabled for this user's account on NATS server %s: enable it there", b.nc.ConnectedServerName())
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return kernel.Refuse(jobs.Unavailable, "JetStream is not enabled on NATS server %s: start it with -js, or jetstream {} in its configuration", b.nc.ConnectedServerName())
	case err != nil:
		return fmt.Errorf("ask for JetStream: %w", err)
	}
	return nil
}

// olderThan compares versions like 2.10.4; an invalid one is not older.
func olderThan(version, least string) bool {
	numbers := func(s string) (n [3]int) {
		s, _, _ = strings.Cut(s, "-")
		for i, part := range strings.SplitN(s, ".", 3) {
			n[i], _ = strconv.Atoi(part)
		}
		return n
	}
	v, l := numbers(version), numbers(least)
	return v != [3]int{} && slices.Compare(v[:], l[:]) < 0
}

const errCodeOverlap jetstream.ErrorCode = 10065 // subjects overlap with an existing stream

func (b *Bus) makeStream(ctx context.Context, term uint64) error {
	want := streamConfig(term)
	if b.place != "" {
		// On the leader's own server: a failure that ends the leader ends the queue, and that of another node does not.
		want.Placement = &jetstream.Placement{Tags: []string{b.place}}
	}
	stream, err := b.js.CreateStream(ctx, want)
	var refused *jetstream.APIError
	switch {
	case err == nil:
		return differences(want, stream.CachedInfo().Config)
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		stream, err := b.js.Stream(ctx, want.Name)
		if err != nil {
			return fmt.Errorf("look at the stream that has our name: %w", err)
		}
		return differences(want, stream.CachedInfo().Config)
	case errors.As(err, &refused) && refused.ErrorCode == errCodeOverlap:
		return kernel.Refuse(jobs.Conflict, "subjects %s belong to %s already: delete it, or remove its subjects",
			want.Subjects[0], b.owners(ctx, want.Subjects[0]))
	}
	return fmt.Errorf("make the stream: %w", err)
}

// owners returns the streams that have a subject.
func (b *Bus) owners(ctx context.Context, subject string) string {
	var found []string
	names := b.js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
	for n := range names.Name() {
		found = append(found, "stream "+n)
	}
	if len(found) == 0 {
		return "a stream that this user may not see"
	}
	return strings.Join(found, " and ")
}

// differences returns in what a stream is not the one we would have made, where that matters.
func differences(want, got jetstream.StreamConfig) error {
	var all []string
	differ := func(what string, want, got any) {
		if want != got {
			all = append(all, fmt.Sprintf("its %s is %v and should be %v", what, got, want))
		}
	}
	differ("retention", want.Retention, got.Retention)
	differ("storage", want.Storage, got.Storage)
	differ("discard policy", want.Discard, got.Discard)
	differ("largest age", want.MaxAge, got.MaxAge)
	differ("list of subjects", strings.Join(want.Subjects, " "), strings.Join(got.Subjects, " "))
	if got.MaxMsgs > 0 {
		differ("largest number of messages", int64(-1), got.MaxMsgs)
	}
	if got.MaxMsgSize > 0 {
		differ("largest message", int32(-1), got.MaxMsgSize)
	}
	if got.NoAck {
		differ("NoAck", false, got.NoAck)
	}
	if got.Sealed {
		differ("seal", false, got.Sealed)
	}
	if len(all) == 0 {
		return nil
	}
	return kernel.Refuse(jobs.Conflict, "stream %s is there, but %s: delete it", got.Name, strings.Join(all, "; "))
}

// ensure makes an app's consumer, unless it was there a moment ago.
func (b *Bus) ensure(ctx context.Context, queue string, term uint64, l bus.Lane) error {
	key := made{queue, consumerName(l.Tenant, l.App)}
	b.making.Lock()
	defer b.making.Unlock()
	if since, ok := b.made[key]; ok && time.Since(since) < remadeAfter {
		return nil
	}
	limited, done := b.briefly(ctx, api, apiTime)
	defer done()
	if err := b.makeConsumer(limited, queue, term, l); err != nil {
		return fmt.Errorf("make the queue of app %q: %w", l.App, b.why(ctx, limited, err))
	}
	b.made[key] = time.Now()
	return nil
}

func (b *Bus) makeConsumer(ctx context.Context, queue string, term uint64, l bus.Lane) error {
	_, err := b.js.CreateOrUpdateConsumer(ctx, queue, consumerConfig(term, l))
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	// The stream has gone. If the server has forgotten it we make it again; if a newer leader has deleted it we do not.
	if _, mine := b.opened.Load(queue); !mine {
		return bus.ErrNoReceiver
	}
	names := b.js.StreamNames(ctx, jetstream.WithStreamListSubject(offerRoot+".>"))
	for stream := range names.Name() {
		if newer, ours := termOf(stream); ours && newer > term {
			return fmt.Errorf("term %d has a queue already: %w", newer, bus.ErrNoReceiver)
		}
	}
	if err := names.Err(); err != nil {
		return err
	}
	if err := b.makeStream(ctx, term); err != nil {
		return err
	}
	_, err = b.js.CreateOrUpdateConsumer(ctx, queue, consumerConfig(term, l))
	return err
}

// forgetMade forgets which consumers exist.
func (b *Bus) forgetMade() {
	b.making.Lock()
	defer b.making.Unlock()
	clear(b.made)
}
