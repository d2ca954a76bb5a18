package ui

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// One who has signed in does not take the places of all others.
func TestStreamsOfOne(t *testing.T) {
	h := hub{ops: ops.New(ops.Config{Store: memstore.Open(memstore.Config{})})}
	var leaves []func()
	join := func(who ops.Who, n int) (joined int) {
		for range n {
			leave, ok := h.join(who)
			if !ok {
				return joined
			}
			joined++
			leaves = append(leaves, leave)
		}
		return joined
	}
	ann, bob := ops.Who{Tenant: jobs.DefaultTenant, Actor: "person:ann", Role: ops.Admin}, ops.Who{Tenant: jobs.DefaultTenant, Actor: "person:bob", Role: ops.Admin}
	if n := join(ann, 1000); n != 64 {
		t.Errorf("one has %d streams", n)
	}
	if n := join(bob, 1); n != 1 {
		t.Error("there is no place for another")
	}
	if n := join(ops.Who{Tenant: "acme", Actor: "person:ann", Role: ops.Admin}, 1); n != 1 {
		t.Error("there is no place for one of the same name in another tenant")
	}
	acme := 1
	for _, name := range strings.Fields("a b c d e f g h") { // a tenant has as many tokens as it likes
		acme += join(ops.Who{Tenant: "acme", Actor: "person:" + name, Role: ops.Admin}, 1000)
	}
	if acme != maxStreams/2 {
		t.Errorf("one tenant has %d streams", acme)
	}
	if n := join(ops.Who{Actor: nameless, Role: ops.Admin}, 1000); n != maxStreams-65-acme {
		t.Errorf("without authentication, %d have streams", n)
	}
	for _, leave := range leaves {
		leave()
	}
	if h.streams != 0 || len(h.own) != 0 || len(h.tenants) != 0 {
		t.Errorf("all have gone, and %d streams of %d are counted", h.streams, len(h.own))
	}
	leaves = nil
	if n := join(ann, 1); n != 1 {
		t.Error("there is no place after all have gone")
	}
	leaves[0]()
}
