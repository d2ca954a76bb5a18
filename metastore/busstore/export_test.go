package busstore

import (
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Patient has a store wait for an answer as long as it repeats words. Tests in real time that compare answers to the
// letter use it: after a pause of the machine the words would be sent twice, and the second answer is another one.
func Patient(s metastore.Store) metastore.Store {
	s.(*store).wait = patience
	return s
}

// Heeds is the newest term that one of Heed's has heard of.
func Heeds(b bus.Bus) uint64 {
	h := b.(*heeding)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term
}
