package embed_test

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A share of the jobs each can be fired only by processes that write to the same rows, and nobody is left to believe that
// they are when they are not.
func TestTriggeringRefused(t *testing.T) {
	for name, c := range map[string]struct {
		embed.Config
		says string
	}{
		"memory":    {embed.Config{Triggering: embed.Distributed}, "needs Database"},
		"directory": {embed.Config{Triggering: embed.Distributed, Dir: t.TempDir()}, "needs Database"},
		"a slip":    {embed.Config{Triggering: "shared"}, `"shared" is neither leader nor distributed`},
	} {
		s, err := embed.Open(t.Context(), c.Config)
		if err == nil {
			_ = s.Close()
		}
		if jobs.CodeOf(err) != jobs.BadInput || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
