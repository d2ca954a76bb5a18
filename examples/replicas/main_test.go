package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

func TestMain(m *testing.M) { os.Exit(sqltest.Main(m)) }

// Two copies of the program: a mail that is asked for at either is sent, also when one has ended.
func TestReplicas(t *testing.T) {
	database := sqltest.Postgres.New(t)
	begin := func(node string) (base string, stop func()) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, listener, database, node) }()
		return "http://" + listener.Addr().String(), func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	read := func(answer *http.Response, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	send := func(base string) {
		run := strings.TrimSpace(read(http.PostForm(base+"/send", url.Values{"to": {"ann@example.com"}})))
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			body := read(http.Get(base + "/api/v1/runs/" + run))
			if strings.Contains(body, "sent by process") {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the mail was not sent: %s", body)
			}
		}
	}
	one, stopOne := begin("one")
	send(one)
	two, stopTwo := begin("two")
	send(two)
	stopOne()
	send(two)
	stopTwo()
}
