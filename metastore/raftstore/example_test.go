package raftstore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
)

// Three nodes: the first makes a cluster, the others join it. Here they are one process; each is a machine of its own
// elsewhere.
func Example_cluster() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	home, err := os.MkdirTemp("", "carillon")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)

	const heartbeat = 5 * time.Second // they share one machine here, which may be busy
	first, err := raftstore.Open(raftstore.Config{Dir: filepath.Join(home, "a"), Node: "a", Listen: "127.0.0.1:0", Heartbeat: heartbeat})
	if err != nil {
		log.Fatal(err)
	}
	defer first.Close()
	for _, name := range []string{"b", "c"} {
		// A person takes the token to the other machine.
		token, err := first.Invite(ctx, raftstore.By{Actor: "person:ann"})
		if err != nil {
			log.Fatal(err)
		}
		node, err := raftstore.Join(ctx, raftstore.Config{Dir: filepath.Join(home, name), Node: name, Listen: "127.0.0.1:0", Heartbeat: heartbeat}, token)
		if err != nil {
			log.Fatal(err)
		}
		defer node.Close()
	}

	hello := kernel.Register{App: "demo", Worker: "w", Start: true, Job: kernel.Declaration{Key: "hello", Kind: kernel.Triggered}}
	for _, r := range first.Apply(ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "example", Command: hello}}) {
		fmt.Println("registered:", r.Err == nil)
	}
	members, err := first.Members(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range members {
		fmt.Println(m.Name, "votes:", m.Voter)
	}
	_, says := raftstore.Tolerates(members)
	fmt.Println(says)
	// Output:
	// registered: true
	// a votes: true
	// b votes: true
	// c votes: true
	// one node may fail
}
