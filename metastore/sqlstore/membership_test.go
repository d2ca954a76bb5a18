package sqlstore

import (
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

func TestMembership(t *testing.T) {
	tests.Long(t)
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			storetest.Membership(t, func(t *testing.T) (metastore.Membership, func() metastore.Membership) {
				url := kind.New(t)
				return open(t, Config{URL: url}), func() metastore.Membership { return open(t, Config{URL: url}) }
			})
		})
	}
}
