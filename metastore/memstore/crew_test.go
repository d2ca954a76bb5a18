package memstore_test

import (
	"testing"

	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

func TestCrew(t *testing.T) {
	storetest.Crew(t, func(*testing.T) (metastore.Crew, func() metastore.Crew) {
		c := new(memstore.Crew)
		return c, func() metastore.Crew { return c }
	})
}
