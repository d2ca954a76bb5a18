package natsbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Ask sends a request to the server in this process itself, as one of its users: see embedded.Server.Remove.
// bus.ErrNoReceiver means that no server answers it, and a refusal that nothing was sent; after any other error it may
// have been received.
func Ask(ctx context.Context, of Server, user, password, subject string, request []byte) ([]byte, error) {
	nc, err := nats.Connect("", nats.InProcessServer(of), nats.UserInfo(user, password), nats.NoReconnect())
	if err != nil {
		return nil, kernel.Refuse(jobs.Unavailable, "connect to the NATS server in this process: %v", refusedBy(err))
	}
	defer nc.Close()
	m, err := nc.RequestWithContext(ctx, subject, request)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, bus.ErrNoReceiver
	}
	if err != nil {
		return nil, fmt.Errorf("ask the NATS server: %w", err)
	}
	return m.Data, nil
}
