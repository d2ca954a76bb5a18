package busstore

import (
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Patient has a store wait for an answer as long as it repeats requests. Tests in real time that compare exact
// answers use it: after a pause of the machine a request would be sent twice, and its second answer differs.
func Patient(s metastore.Store) metastore.Store {
	s.(*store).wait = patience
	return s
}

// Heeds is the newest term that one of Heed's knows.
func Heeds(b bus.Bus) uint64 {
	h := b.(*heeding)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term
}
