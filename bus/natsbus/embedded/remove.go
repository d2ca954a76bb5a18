package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// stewards are the permissions of our own process as the servers' steward.
var stewards = &server.Permissions{
	Publish:   &server.SubjectPermission{Allow: []string{server.JSApiRemoveServer}},
	Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
}

// askAgain is how long Remove waits before it asks again, while the servers have no leader: they need some seconds when
// the leader was the one that died.
const askAgain = 250 * time.Millisecond

// oneAsk is how long one answer is waited for: it is lost when the leader dies or changes.
const oneAsk = 2 * time.Second

// Remove takes a dead server out of the servers' raft group: until then it counts for the majority. It returns when the
// others have agreed, or with the reason why they have not when ctx ends; jobs.NotFound means that it is no member. A
// server of the same name is a member again five minutes later at the earliest: if its node leads before, offers go to
// each worker by itself.
func (s *Server) Remove(ctx context.Context, name string) error {
	switch {
	case s.cluster.alone():
		return kernel.Refuse(jobs.Conflict, "the NATS server of this node is alone")
	case s.authenticator == nil:
		return kernel.Refuse(jobs.Conflict, "the NATS server of this node has configured users, none of whom may remove a server")
	case name == s.options.ServerName:
		return kernel.Refuse(jobs.Conflict, "the NATS server of this node cannot remove itself")
	}
	raw, err := json.Marshal(server.JSApiMetaServerRemoveRequest{Peer: peer(name)})
	if err != nil {
		return err
	}
	if err := insist(ctx, func(ctx context.Context) error { return s.remove(ctx, raw) }); err != nil {
		return fmt.Errorf("remove NATS server %s: %w", name, err)
	}
	return nil
}

// insist asks until there is an answer, or ctx ends.
func insist(ctx context.Context, ask func(context.Context) error) error {
	for lost := false; ; {
		err := ask(ctx)
		switch code := jobs.CodeOf(err); {
		case err == nil, lost && code == jobs.NotFound: // the lost request was done
			return nil
		case code == jobs.NotFound:
			return err
		case code == jobs.Unknown: // and not that there was no server to ask
			lost = true
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
}

// remove asks once.
func (s *Server) remove(ctx context.Context, request []byte) error {
	ctx, cancel := context.WithTimeout(ctx, oneAsk)
	defer cancel()
	raw, err := natsbus.Ask(ctx, s, steward, s.authenticator.secret, server.JSApiRemoveServer, request)
	if errors.Is(err, bus.ErrNoReceiver) {
		return kernel.Refuse(jobs.Unavailable, "the NATS servers have no leader: a majority of them must run")
	}
	if err != nil {
		return err
	}
	var answer server.JSApiMetaServerRemoveResponse
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("invalid answer: %w", err)
	}
	switch {
	case answer.Error == nil:
		return nil
	case answer.Error.ErrCode == uint16(server.JSClusterServerNotMemberErr):
		return kernel.Refuse(jobs.NotFound, "it is not a member")
	}
	return answer.Error
}

// Peers returns how many members the servers' raft group has, as far as this one knows; 0 = no cluster.
func (s *Server) Peers() int {
	info, err := s.nats.Load().Jsz(nil)
	if err != nil || info.Meta == nil {
		return 0
	}
	return info.Meta.Size
}

// peer returns the servers' id of a name. They know the names only of those that they have met since their start.
func peer(name string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(name))
	of := sum[:8]
	for i, b := range of {
		of[i] = digits[int(b)%len(digits)]
	}
	return string(of)
}
