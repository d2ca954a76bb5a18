package storetest

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// CreateTenants creates tenants for a test.
func CreateTenants(t testing.TB, s metastore.Applier, names ...jobs.Tenant) {
	t.Helper()
	for _, name := range names {
		r := s.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:test", Command: kernel.SetTenant{Name: name, Create: true}}})
		if r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
}
