package embed

import (
	"context"
	"errors"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// silent is a bus over which the leader answers with an error.
type silent struct {
	bus.Calls
	err error
}

func (s silent) Call(context.Context, string, []byte) ([]byte, error) { return nil, s.err }

// When the leader's response is lost, the outcome of a command is unknown.
func TestLeaderThatDoesNotAnswer(t *testing.T) {
	lost := errors.New("the answer is lost")
	for _, test := range []struct {
		call error
		want jobs.Code
	}{{lost, jobs.Unknown}, {bus.ErrNoReceiver, jobs.Unavailable}} {
		c := &cluster{live: &live{plane: new(controlplane.ControlPlane)}, calls: silent{err: test.call}}
		_, invited := c.Invite(t.Context(), ops.Who{})
		for what, err := range map[string]error{
			"remove": c.Remove(t.Context(), ops.Who{}, "n2"), "transfer": c.Transfer(t.Context(), ops.Who{}, "n2"), "invite": invited,
		} {
			if got := jobs.CodeOf(err); got != test.want {
				t.Errorf("%s: %v becomes %v: %v", what, test.call, got, err)
			}
		}
	}
	c := &cluster{live: &live{plane: new(controlplane.ControlPlane)}, calls: silent{err: lost}}
	if _, err := asked[ops.ClusterStatus](t.Context(), c, clusterRequest{What: requestStatus}); jobs.CodeOf(err) != jobs.Unavailable {
		t.Errorf("status: %v", err)
	}
}
