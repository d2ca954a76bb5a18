package embedded

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// line is a server's connections, and when they were ended.
type line struct {
	mu    sync.Mutex
	ended map[uint64]time.Time
}

func (l *line) has(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended[id].IsZero()
}

func (l *line) end(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[id] = time.Now()
}

// A token's connections end within a second after it was revoked, whenever that is, and although the store hangs for
// others.
func TestARevokedTokenEndsWithinASecond(t *testing.T) {
	for phase := time.Duration(0); phase < 3*time.Second; phase += 70 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			revoked := map[string]bool{}
			check := func(ctx context.Context, token string) error {
				if token == "hangs" {
					<-ctx.Done()
					return ctx.Err()
				}
				time.Sleep(50 * time.Millisecond) // a leader elsewhere
				mu.Lock()
				defer mu.Unlock()
				if revoked[token] {
					return kernel.Refuse(jobs.Forbidden, "revoked")
				}
				return nil
			}
			d := newAuthenticator(func(ctx context.Context, token string) (bus.Principal, string, error) {
				if token == natsbus.PeerToken {
					t.Error("a node's token is taken for a user's")
				}
				return bus.Principal{}, "", check(ctx, token)
			}, nil, nil)
			d.peers = check
			connections := &line{ended: map[uint64]time.Time{}}
			d.connections = connections
			for i := range uint64(40) {
				d.sessions[i] = session{token: fmt.Sprint("token ", i/2)} // two of each
			}
			d.sessions[100], d.sessions[101] = session{token: "hangs"}, session{token: natsbus.PeerToken}
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				d.watch(stop)
			}()
			time.Sleep(phase)
			mu.Lock()
			revoked["token 7"], revoked[natsbus.PeerToken] = true, true
			mu.Unlock()
			at := time.Now()
			time.Sleep(5 * time.Second)
			close(stop)
			<-stopped
			for id := range d.sessions {
				if !connections.ended[id].IsZero() {
					t.Errorf("connection %d was ended", id)
				}
			}
			if len(connections.ended) != 3 {
				t.Errorf("%d connections were ended", len(connections.ended))
			}
			for _, id := range []uint64{14, 15, 101} {
				if took := connections.ended[id].Sub(at); took < 0 || took > time.Second {
					t.Errorf("revoked after %v, connection %d was ended %v later", phase, id, took)
				}
			}
		})
	}
}
