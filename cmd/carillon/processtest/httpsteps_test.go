//go:build unix

package processtest

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// Chains of requests with qos 1, one held at each step, when the worker, the server or both are killed: each goes on
// from the request that was under way. While the worker lives not even that is made again.
func TestHTTPChainsSurviveAKillAtEachStep(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	for _, who := range []string{"worker", "server", "worker and server"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			killAtEachStep(t, strings.Contains(who, "worker"), strings.Contains(who, "server"))
		})
	}
}

// held is the first request of each step of a chain: /k/k of the kth.
func held(path string) bool { return len(path) == 4 && path[1] == path[3] }

func killAtEachStep(t *testing.T, killWorker, killServer bool) {
	const steps = 4 // three requests, then a look at what became of it
	var mu sync.Mutex
	asked := map[string]int{}
	reached, release := make(chan string, steps), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		first := asked[r.URL.Path] == 1
		mu.Unlock()
		if first && held(r.URL.Path) {
			reached <- r.URL.Path
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
		}
		if strings.HasSuffix(r.URL.Path, "/4") {
			_, _ = fmt.Fprintf(w, `{"status":"succeed","data":{"after":%q}}`, r.URL.Query().Get("after"))
			return
		}
		_, _ = fmt.Fprintf(w, `{"path":%q}`, r.URL.Path)
	}))
	t.Cleanup(target.Close)
	h := newFixture(t, "")
	worker := h.hireHTTP("h1")
	var ids []string
	for k := 1; k <= steps; k++ {
		h.do(http.MethodPost, "/api/v1/jobs", strings.ReplaceAll(fmt.Sprintf(`{"key":"shop.chain-%d","kind":"triggered","app":"http","retries":0,"http":{"qos":1,"async":true,"request":[
			{"url":"AT/1"},{"url":"AT/2"},{"url":"AT/3"}],"checkUrl":{"url":"AT/4?after=${responses[2].path}"}}}`, k), "AT", fmt.Sprint(target.URL, "/", k)))
		answer := string(h.do(http.MethodPost, fmt.Sprintf("/api/v1/jobs/shop.chain-%d/trigger", k), `{}`))
		ids = append(ids, strings.Split(answer, `"id":"`)[1][:36])
	}
	for range steps {
		select {
		case <-reached:
		case <-time.After(time.Minute):
			t.Fatal("not every chain has come to its step within a minute")
		}
	}
	if killServer {
		h.server.kill()
	}
	if killWorker {
		worker.kill()
	}
	close(release) // pending requests get responses while no worker can store them
	if killServer {
		h.serve()
	}
	attempts, times := 1, 1
	if killWorker {
		attempts, times = 2, 2
		h.hireHTTP("h2")
	}
	want := map[string]int{}
	for k := 1; k <= steps; k++ {
		if in := h.reaches(ids[k-1], "Succeeded", attempts); string(in.Result) != fmt.Sprintf(`{"after":"/%d/3"}`, k) {
			t.Errorf("the chain that was held at step %d ended with %s", k, in.Result)
		}
		for step := 1; step <= steps; step++ {
			want[fmt.Sprintf("/%d/%d", k, step)] = 1
		}
		want[fmt.Sprintf("/%d/%d", k, k)] = times
	}
	mu.Lock()
	defer mu.Unlock()
	if !maps.Equal(asked, want) {
		t.Errorf("requests were made\n%v times, want\n%v", asked, want)
	}
}
