package sqlstore

import (
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

func TestCrew(t *testing.T) {
	tests.Long(t)
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			storetest.Crew(t, func(t *testing.T) (metastore.Crew, func() metastore.Crew) {
				url := kind.New(t)
				return open(t, Config{URL: url}), func() metastore.Crew { return open(t, Config{URL: url}) }
			})
		})
	}
}
