package busstore

import "github.com/carillon-scheduler/carillon/bus"

// Heeds is the newest term that one of Heed's has heard of.
func Heeds(b bus.Bus) uint64 {
	h := b.(*heeding)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term
}
