package embedded

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A server closes a connection for which it stores more than maxPending bytes. For the connection of a node in this
// process, the leader's, these are the requests of all callers: a single one that sends without end, and heeds no
// bound of natsbus, would close the connection that all others need. So the loudest callers lose theirs before.
const (
	// flooded is for how many stored bytes of a connection of this process the loudest senders are closed: as many as 32
	// connections may have under way in large requests (natsbus/load.go), if the node reads none of them.
	flooded = maxPending / 4
	// lookForFloods is how often that is looked at. Even at some gigabytes a second there is time for several looks.
	lookForFloods = 20 * time.Millisecond
	// lookForOurs is for how long the connections of this process are looked up after one was made: the server gives
	// them their numbers meanwhile.
	lookForOurs = time.Second
	// measureFlood is for how long the senders' bytes are counted then.
	measureFlood = 2 * time.Millisecond
	// loud is the least that a sender of a flood has sent in that time.
	loud = 256 << 10
)

// watchFloods ends the connections of floods until end is closed.
func (s *Server) watchFloods(end <-chan struct{}) {
	tick := time.NewTicker(lookForFloods)
	defer tick.Stop()
	var ours []uint64
	for {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		n := s.nats.Load()
		if time.Since(time.Unix(0, s.entered.Load())) < lookForOurs {
			ours = ours[:0]
			for id, c := range connectionsOf(n) {
				if inside(c) {
					ours = append(ours, id)
				}
			}
		}
		for _, id := range ours {
			c, err := n.Connz(&server.ConnzOptions{CID: id})
			if err == nil && len(c.Conns) == 1 && c.Conns[0].Pending > flooded {
				s.endFlood(n)
				break
			}
		}
	}
}

// endFlood ends the connections that send the most.
func (s *Server) endFlood(n *server.Server) {
	before := connectionsOf(n)
	time.Sleep(measureFlood)
	after := connectionsOf(n)
	most := int64(2 * loud)
	sent := map[uint64]int64{}
	for id, c := range after {
		if was, known := before[id]; known && !inside(c) {
			sent[id] = c.InBytes - was.InBytes
			most = max(most, sent[id])
		}
	}
	for id, bytes := range sent {
		if bytes < most/2 {
			continue
		}
		c := after[id]
		s.log.write(slog.LevelWarn, "connection %s of %s:%d closed: it has sent %d bytes in %v, and a node does not keep up",
			[]any{cut(c.Name), c.IP, c.Port, bytes, measureFlood})
		_ = n.DisconnectClientByID(id) // it may have gone by itself
	}
}

// inside reports whether a connection is one of this process.
func inside(c *server.ConnInfo) bool { return c.Port == 0 }

func connectionsOf(n *server.Server) map[uint64]*server.ConnInfo {
	all, err := n.Connz(&server.ConnzOptions{Limit: 1 << 20})
	if err != nil {
		return nil
	}
	by := make(map[uint64]*server.ConnInfo, len(all.Conns))
	for _, c := range all.Conns {
		by[c.Cid] = c
	}
	return by
}
