package natsbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
)

// Ask asks a server in this process something that is the server's own affair, as one of its users: see
// embedded.Server.Remove. bus.ErrNobody means that no server answers that.
func Ask(ctx context.Context, of Server, user, password, subject string, request []byte) ([]byte, error) {
	nc, err := nats.Connect("", nats.InProcessServer(of), nats.UserInfo(user, password), nats.NoReconnect())
	if err != nil {
		return nil, fmt.Errorf("connect to the NATS server in this process: %w", refusedBy(err))
	}
	defer nc.Close()
	m, err := nc.RequestWithContext(ctx, subject, request)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, bus.ErrNobody
	}
	if err != nil {
		return nil, fmt.Errorf("ask the NATS server: %w", err)
	}
	return m.Data, nil
}
