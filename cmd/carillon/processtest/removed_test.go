//go:build unix

package processtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// The data directory of a removed node gives no access any more: a NATS server with its key is disconnected and
// refused, so a thief cannot create tokens with it, and its program ends. The other nodes continue meanwhile, and can
// restart.
func TestRemovedNodeIsKeptOut(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	f := newFortress(t)
	lead := f.leader(0)
	gone, stays := (lead+1)%3, (lead+2)%3
	names := []string{"n1", "n2", "n3"}
	f.nodes[gone].kill()
	stolen := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(stolen, os.DirFS(f.walls[gone].data)); err != nil {
		t.Fatal(err)
	}
	var known struct{ Routes []string }
	raw, err := os.ReadFile(filepath.Join(stolen, "cluster.json"))
	if err == nil {
		err = json.Unmarshal(raw, &known)
	}
	if err != nil || len(known.Routes) < 2 {
		t.Fatalf("the stolen directory knows %v, %v", known, err)
	}
	// thief is a modified NATS server with the stolen key.
	thief := func(name string) *ops.Ops {
		t.Helper()
		i, err := raftstore.Identify(filepath.Join(stolen, "rows"))
		if err != nil {
			t.Fatal(err)
		}
		trusting := i.Routes()
		trusting.VerifyConnection = func(tls.ConnectionState) error { return nil }
		s, err := embedded.Start(embedded.Config{Name: name, Cluster: embedded.Cluster{Routes: known.Routes, TLS: trusting}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop() })
		as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: names[gone]}
		b, err := natsbus.Connect(t.Context(), "", natsbus.Config{As: as, InProcess: s})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return ops.New(ops.Config{Store: busstore.New(b, as)})
	}
	grants := func(o *ops.Ops, name string) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := o.Adopt(ctx, ops.Who{Actor: "node:" + names[gone], Role: ops.Admin}, ops.NewToken{Name: name, Role: kernel.RoleAdmin}, ops.TokenText(jobs.DefaultTenant))
		return err == nil
	}
	inside := thief("inside")
	tries := 0
	await(t, "a member grants a token", func() bool { tries++; return grants(inside, fmt.Sprint("before ", tries)) })

	await(t, names[gone]+" is removed", func() bool {
		status, raw, _ := f.walls[lead].ask(http.MethodDelete, "/api/v1/cluster/nodes/"+names[gone], f.admin, "")
		t.Logf("%d %s", status, raw)
		return status/100 == 2 || status == http.StatusNotFound
	})
	tries = 0
	await(t, "the connections of the removed node are closed", func() bool { tries++; return !grants(inside, fmt.Sprint("at once ", tries)) })
	outside := thief("outside")
	for i := range 3 {
		if grants(outside, fmt.Sprint("after ", i)) || grants(inside, fmt.Sprint("later ", i)) {
			t.Error("the removed node grants a token")
		}
	}
	args := slices.Clone(f.nodes[gone].cmd.Args[1:])
	args[slices.Index(args, "--data")+1] = stolen
	path, err := carillonProgram()
	if err != nil {
		t.Fatal(err)
	}
	back := start(t, "the copy of "+names[gone], path, nil, append(args, "--new-admin-token")...)
	await(t, "the program of the removed node ends", back.over)
	if !back.out.has("no longer in the cluster") {
		t.Errorf("output: %s", back.out)
	}

	goes := func(what string) {
		t.Helper()
		await(t, what+": a change is made", func() bool {
			status, _, _ := f.walls[stays].ask(http.MethodPost, "/api/v1/tokens", f.admin, fmt.Sprintf(`{"name":%q,"role":"client"}`, what))
			return status == http.StatusCreated || status == http.StatusConflict
		})
		_, raw, _ := f.walls[stays].ask(http.MethodGet, "/api/v1/tokens", f.admin, "")
		for _, token := range decode[list[api.Token]](t, raw).Items {
			if token.By == "node:"+names[gone] && !strings.HasPrefix(token.Name, "first") && !strings.HasPrefix(token.Name, "before") && !strings.HasPrefix(token.Name, "at once") {
				t.Errorf("%s: there is a token %q", what, token.Name)
			}
		}
	}
	goes("two nodes")
	for _, i := range []int{lead, stays} {
		f.nodes[i].kill()
	}
	for _, i := range []int{lead, stays} {
		f.nodes[i] = start(t, "node "+names[i], path, nil, f.nodes[i].cmd.Args[1:]...)
	}
	f.ready(lead)
	f.ready(stays)
	if grants(outside, "after a restart") {
		t.Error("the removed node grants a token after a restart of the others")
	}
	goes("after a restart")
}
