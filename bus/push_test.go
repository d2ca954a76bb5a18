package bus_test

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func startedRuns(n, args int) (runs []*kernel.Run) {
	due := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for i := range n {
		runs = append(runs, &kernel.Run{Tenant: "default", ID: kernel.DerivedID(fmt.Sprint(i)), Key: "mail.welcome", App: "mail", State: jobs.Processing, Attempt: 1,
			Worker: "w-1", Due: due, Created: due, Queued: due, Started: due, Args: bytes.Repeat([]byte("x"), args)})
	}
	return runs
}

// A push goes in as many parcels as its size needs, in order; what is too large by itself is named.
func TestPushesArePacked(t *testing.T) {
	runs := startedRuns(100, 50)
	runs[40].Args = bytes.Repeat([]byte("y"), 2000)
	p := bus.Push{Term: 7, Process: -5, Heard: time.Second, Lease: 15 * time.Second, Runs: runs}
	parcels, large := p.Pack(1000)
	if len(large) != 1 || large[0] != runs[40] || len(parcels) < 2 {
		t.Fatalf("%d parcels, %d too large", len(parcels), len(large))
	}
	var got []*kernel.Run
	for _, parcel := range parcels {
		if len(parcel.Bytes) > 1000 {
			t.Errorf("a parcel has %d bytes", len(parcel.Bytes))
		}
		q, err := bus.DecodePush(parcel.Bytes)
		if err != nil || q.Term != p.Term || q.Process != p.Process || q.Heard != p.Heard || q.Lease != p.Lease || !reflect.DeepEqual(q.Runs, parcel.Runs) {
			t.Fatalf("read back: %+v, %v", q, err)
		}
		got = append(got, parcel.Runs...)
	}
	if want := append(runs[:40:40], runs[41:]...); !reflect.DeepEqual(got, want) {
		t.Errorf("%d runs arrive, of %d", len(got), len(want))
	}
	for n := range 12 {
		if _, err := bus.DecodePush(parcels[0].Bytes[:n]); err == nil && n < 5 {
			t.Errorf("a head of %d bytes is read", n)
		}
	}
}
