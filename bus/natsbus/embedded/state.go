package embedded

import "fmt"

// State returns the state of the server, as short text.
func (s *Server) State() string {
	n := s.nats.Load()
	if n == nil || !n.Running() {
		return "not running"
	}
	routes := map[string]bool{}
	if all, err := n.Routez(nil); err == nil {
		for _, r := range all.Routes {
			routes[r.RemoteID] = true // to each server there are several
		}
	}
	text := fmt.Sprintf("%d clients", n.NumClients())
	if n.NumClients() == 1 {
		text = "1 client"
	}
	switch len(routes) {
	case 0:
	case 1:
		text += ", 1 other server"
	default:
		text += fmt.Sprintf(", %d other servers", len(routes))
	}
	return text
}
