package archive

import (
	"os"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

func TestMain(m *testing.M) {
	tests.InMemory()
	os.Exit(m.Run())
}
