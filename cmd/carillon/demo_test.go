package main

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// Whoever sees dev for the first time finds a failure to look into, whose error says what would help; the next start
// adds none.
func TestTheDemoHasAFailureAtOnce(t *testing.T) {
	t.Parallel()
	show := &demo{}
	s, err := embed.Start(t.Context(), embed.Config{Worker: worker.Config{App: "demo", Grace: -1}}, show.jobs()...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	show.client = s.Client()
	for range 2 {
		if err := show.start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Ops().Instances(t.Context(), ops.Who{}, metastore.InstanceQuery{Job: jobs.Key(importJob)})
	if err != nil {
		t.Fatal(err)
	}
	var first []jobs.ID
	for _, in := range page.Instances { // the inbox may have brought others
		if strings.Contains(string(in.Args), "0000") {
			first = append(first, in.ID)
		}
	}
	if len(first) != 1 {
		t.Fatalf("%d files wait for who comes first, want 1", len(first))
	}
	in, err := s.Client().Wait(t.Context(), first[0])
	if err != nil || in.State != jobs.Terminated || !strings.Contains(in.Error, `"decimal": ","`) {
		t.Errorf("it is %v: %q, %v", in.State, in.Error, err)
	}
}
