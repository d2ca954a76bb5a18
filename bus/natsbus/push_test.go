package natsbus_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
)

// exitsAt has this program be a worker at the server with that URL, see exit.
const exitsAt = "NATSBUS_TEST_EXITS_AT"

func TestMain(m *testing.M) {
	if url := os.Getenv(exitsAt); url != "" {
		exit(url)
	}
	os.Exit(m.Run())
}

// exit is a worker whose process ends as soon as a push is answered.
func exit(url string) {
	ctx := context.Background()
	b, err := natsbus.Connect(ctx, url, natsbus.Config{As: worker, TLS: &tls.Config{InsecureSkipVerify: true}})
	if err == nil {
		err = b.Accept(ctx, here, func(push []byte) ([]byte, func()) { return push, func() { os.Exit(0) } })
	}
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("accepts\n")
	select {}
}

// The leader has the answer although the worker's process ends by what it begins: each time, and with TLS, which writes
// in pieces.
func TestTheAnswerLeavesBeforeThen(t *testing.T) {
	page := httptest.NewTLSServer(nil)
	defer page.Close()
	s := start(t, embedded.Config{TLS: &tls.Config{Certificates: page.TLS.Certificates}})
	leader := connect(t, "", natsbus.Config{As: node, InProcess: s, TLS: &tls.Config{InsecureSkipVerify: true}})
	push := bytes.Repeat([]byte("x"), 30_000) // less than what the library buffers, and more than TLS writes at once
	for range 20 {
		process := exec.CommandContext(t.Context(), os.Args[0])
		process.Env = append(os.Environ(), exitsAt+"="+s.URL(), "GORACE=atexit_sleep_ms=0") // a race detector's exit would leave time to write
		process.Stderr = os.Stderr
		out, err := process.StdoutPipe()
		must(t, err)
		must(t, process.Start())
		_, err = io.ReadFull(out, make([]byte, len("accepts\n")))
		must(t, err)
		answered := make(chan error, 1)
		go func() {
			answer, err := leader.Push(within(t), here, push)
			if err == nil && !bytes.Equal(answer, push) {
				t.Errorf("the answer has %d bytes, not %d", len(answer), len(push))
			}
			answered <- err
		}()
		must(t, process.Wait())
		select {
		case err := <-answered:
			must(t, err)
		case <-time.After(10 * time.Second): // the server has all that it will ever have
			t.Fatal("the process has ended, and its answer has not come")
		}
	}
}

// A worker that is slow loses no push: more wait than a connection holds by default.
func TestPushesWaitForASlowWorker(t *testing.T) {
	s := start(t, embedded.Config{})
	leader, taker := connect(t, "", natsbus.Config{As: node, InProcess: s}), connect(t, s.URL(), natsbus.Config{As: worker})
	const pushes, size = 20, 4 << 20
	free := make(chan struct{})
	must(t, taker.Accept(t.Context(), here, func([]byte) ([]byte, func()) {
		<-free
		return nil, nil
	}))
	errs := make(chan error, pushes)
	ctx := within(t)
	for sent := uint64(size); sent <= pushes*size; sent += size {
		go func() {
			_, err := leader.Push(ctx, here, make([]byte, size))
			errs <- err
		}()
		for taker.Read() < sent && ctx.Err() == nil { // the server would not hold them all
			runtime.Gosched()
		}
	}
	close(free)
	for range pushes {
		must(t, <-errs)
	}
}
