package embedded_test

import (
	"os"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

func TestMain(m *testing.M) {
	tests.Parallel(4) // servers mostly wait for each other
	os.Exit(m.Run())
}
