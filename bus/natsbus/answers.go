package natsbus

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/nats-io/nats.go"
)

// answers are the answers that a connection waits for, each on a subject that is used once. The subject ends in the
// connection's mark and a random token, both from crypto/rand: the library's own reply subjects come from math/rand, so
// that a peer that has seen some of them can compute the next.
type answers struct {
	mark    string // of this connection, in all those subjects
	subject string // the subject that covers them

	mu      sync.Mutex
	sub     *nats.Subscription
	waiting map[string]chan *nats.Msg // by the subject of the answer
}

// newAnswers makes answers; subject returns the subject that covers those with a mark.
func newAnswers(subject func(mark string) string) *answers {
	mark := rand.Text()
	return &answers{mark: mark, subject: subject(mark), waiting: map[string]chan *nats.Msg{}}
}

// expect makes a subject for one answer, under a prefix.
func (a *answers) expect(nc *nats.Conn, prefix string) (subject string, answer <-chan *nats.Msg, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sub == nil { // the first: the server knows of it before it sees the request
		if a.sub, err = nc.Subscribe(a.subject, a.arrive); err != nil {
			return "", nil, err
		}
	}
	subject = prefix + "." + a.mark + "." + rand.Text()
	ch := make(chan *nats.Msg, 1)
	a.waiting[subject] = ch
	return subject, ch, nil
}

// forget gives up on an answer.
func (a *answers) forget(subject string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, subject)
}

// arrive passes an answer on. The whole subject is compared: it names the sender.
func (a *answers) arrive(m *nats.Msg) {
	a.mu.Lock()
	ch := a.waiting[m.Subject]
	delete(a.waiting, m.Subject)
	a.mu.Unlock()
	if ch != nil {
		ch <- m
	}
}

// request sends a request whose answer comes to a subject under a prefix, and waits for it.
func (a *answers) request(ctx context.Context, nc *nats.Conn, subject, prefix string, data []byte) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reply, answer, err := a.expect(nc, prefix)
	if err != nil {
		return nil, err
	}
	defer a.forget(reply)
	if err := nc.PublishRequest(subject, reply, data); err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			return nil, nats.ErrNoResponders
		}
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
