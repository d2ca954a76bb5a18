package memstore_test

import (
	"testing"

	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

func TestMembership(t *testing.T) {
	storetest.Membership(t, func(*testing.T) (metastore.Membership, func() metastore.Membership) {
		c := new(memstore.Membership)
		return c, func() metastore.Membership { return c }
	})
}
