package embed_test

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Open refuses distributed triggering without a Database, which the processes must share.
func TestTriggeringRefused(t *testing.T) {
	for name, c := range map[string]struct {
		embed.Config
		text string
	}{
		"memory":    {embed.Config{Triggering: embed.Distributed}, "needs Database"},
		"directory": {embed.Config{Triggering: embed.Distributed, Dir: t.TempDir()}, "needs Database"},
		"a slip":    {embed.Config{Triggering: "shared"}, `invalid triggering "shared": want leader or distributed`},
	} {
		s, err := embed.Open(t.Context(), c.Config)
		if err == nil {
			_ = s.Close()
		}
		if jobs.CodeOf(err) != jobs.BadInput || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
}
