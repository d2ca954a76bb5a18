package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/outcome"
)

type plainArgs struct {
	Text  string `json:"text"`
	Yes   bool
	N     int           `json:"n"`
	Wait  time.Duration `json:"wait"`
	Ratio float64       `json:"ratio"`
}

// Arguments that the fast reader refuses come from encoding/json, as if nothing had been read before.
func TestReadArgs(t *testing.T) {
	var got plainArgs
	job := NewTriggered(TriggeredFunc[plainArgs](func(_ context.Context, a plainArgs) error { got = a; return nil }), Options{Key: "j"})
	for raw, want := range map[string]plainArgs{
		`{"text":"a","n":5}`:          {Text: "a", N: 5},
		`{"text":"a","n":null}`:       {Text: "a"},
		`{"text":"a","TEXT":"b"}`:     {Text: "b"},
		`{"text":"\u00e4","more":[]}`: {Text: "ä"},
	} {
		if err := job.Run(t.Context(), []byte(raw)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
	if err := job.Run(t.Context(), []byte(`{"text":"a","n":"b"}`)); !outcome.IsFinal(err) {
		t.Errorf("arguments that do not fit: %v", err)
	}
}

// Reading arguments allocates nothing beside the arguments.
func TestAllocationsOfReadingArgs(t *testing.T) {
	job := NewTriggered(TriggeredFunc[plainArgs](func(context.Context, plainArgs) error { return nil }), Options{Key: "j"})
	raw := []byte(`{"n":5,"Yes":true,"ratio":1.5,"wait":1000}`)
	if n := testing.AllocsPerRun(100, func() { _ = job.Run(t.Context(), raw) }); n > 1 {
		t.Errorf("%v allocations, want one", n)
	}
}
