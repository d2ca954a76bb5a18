package controlplane

import (
	"context"
	"testing"
)

// A node leads no longer than its term, even if a duty does not end with it.
func TestReadinessEndsWithItsTerm(t *testing.T) {
	cp := new(ControlPlane)
	ctx, end := context.WithCancel(t.Context())
	cp.ready.begin(ctx, 3)
	if term, _ := cp.Leading(); term != 3 {
		t.Errorf("it leads term %d", term)
	}
	end()
	if term, _ := cp.Leading(); term != 0 {
		t.Errorf("it leads term %d after its end", term)
	}
	if ctx, _ := cp.ready.now(); ctx != nil {
		t.Error("it pushes after the end of its term")
	}
}
