//go:build unix

package processtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// load is a client that sends requests at a steady rate, regardless of faults, and records the responses.
type load struct {
	t       *testing.T
	fixture *fixture
	random  *rand.Rand
	end     context.CancelFunc
	wg      sync.WaitGroup

	mu    sync.Mutex
	asked []asked
}

// press begins a load of so many runs a second.
func (h *fixture) press(perSecond int) *load {
	ctx, end := context.WithCancel(h.t.Context())
	l := &load{t: h.t, fixture: h, random: tests.Random(h.t), end: end}
	h.t.Cleanup(l.stop)
	l.wg.Go(func() {
		begin := time.Now()
		for n := 0; ctx.Err() == nil; n++ {
			due := begin.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				return
			}
			w, err := l.mixture(n)
			if err != nil {
				h.t.Error(err)
				return
			}
			l.wg.Go(func() { l.ask(w) }) // the next request does not wait for the response
		}
	})
	return l
}

// ask sends one request. The client repeats it for half a minute while no server responds.
func (l *load) ask(w jobs.Request) {
	at := time.Now()
	runs, err := l.fixture.client.Enqueue(context.Background(), w)
	a := asked{at: at, request: w, err: err}
	switch {
	case err == nil:
		a.run, a.duplicate = runs[0].ID, runs[0].Duplicate
	case jobs.CodeOf(err) != jobs.Unknown && jobs.CodeOf(err) != jobs.Unavailable:
		l.t.Errorf("a request was refused: %v", err)
	}
	l.add(a)
}

// stop ends the load, and waits for all responses.
func (l *load) stop() {
	l.end()
	l.wg.Wait()
}

// add adds requests of other clients.
func (l *load) add(a asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, a)
}

// results returns the requests with responses so far, in order.
func (l *load) results() []asked {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.asked)
	slices.SortFunc(list, func(a, b asked) int { return a.at.Compare(b.at) })
	return list
}

// repeat sends some requests of finished runs again, with their IDs: recent ones, because an ID is remembered for a
// minute.
func (l *load) repeat(most int) (repeated int) {
	l.t.Helper()
	list := l.results()
	l.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, a := range list {
		if repeated == most || a.err != nil || a.duplicate || time.Since(a.at) > 45*time.Second {
			continue
		}
		if l.fixture.get(a.run).State.Final() {
			l.ask(a.request)
			repeated++
		}
	}
	return repeated
}

// mixture is what the client of a busy system asks for: most runs at once, some later, some under a key that others
// use as well, some that must wait for each other, some that take long.
func (l *load) mixture(n int) (jobs.Request, error) {
	var how []jobs.EnqueueOption
	job, millis := plainJob, l.random.IntN(20)
	switch n % 10 {
	case 1:
		how = append(how, jobs.After(time.Duration(l.random.IntN(3000))*time.Millisecond))
	case 3:
		how = append(how, jobs.Unique(fmt.Sprintf("u%d", n/50))) // five requests of a quarter of a second
	case 5:
		job = threeJob
	case 9:
		millis = 200 + l.random.IntN(800)
	}
	w, err := job.Request(task{Number: n, Millis: millis}, how...)
	if n%10 == 7 {
		// Two requests at nearly the same time are one: the same key and the same content.
		w.Idempotency, w.Args = fmt.Sprintf("i%d", n/20), []byte(`{}`)
	}
	return w, err
}
