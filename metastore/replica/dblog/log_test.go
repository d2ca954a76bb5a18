package dblog_test

import (
	"testing"

	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/dbtest"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
)

func TestDatabase(t *testing.T) {
	dbtest.Run(t, func(*testing.T) dbtest.Harness {
		db := new(memdb.DB)
		return dbtest.Harness{Database: db, Delete: db.Delete, ForgetTerm: db.ForgetTerm, SpoilEntry: db.SpoilEntry, SpoilPart: db.SpoilPart, Attempts: db.Attempts}
	})
}
