package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// soaked is the job that goes on and on. Its runs are kept as those of any job by default: the last thousand, and what
// ended within the last ten minutes.
var soaked = jobs.Trigger[noArgs]("bench.soak")

// The pace of what is timed while the load goes on, and how much of the time is left out: memory and files fill up to
// what they need, and runs are first forgotten after ten minutes.
const (
	probesPerSecond = 50
	leftOut         = 3 // the first third
	forgottenAfter  = 15 * time.Minute
)

// soaking is what is watched.
var soaking = []struct {
	name  string
	small float64 // how much it may rise whatever its size: less is noise
	kept  bool    // it grows with the runs that are kept
}{
	{"server's memory, MiB", 32, true}, {"server's heap, MiB", 32, true}, {"server's open files", 20, true}, {"data directory, MiB", 256, true}, {"server's goroutines", 20, false},
	{"worker's memory, MiB", 32, false}, {"worker's heap, MiB", 32, false}, {"worker's open files", 20, false}, {"worker's goroutines", 20, false},
	{"start p50, ms", 1, false}, {"start p99, ms", 5, false},
}

// trend is what became of something over time.
type trend struct {
	Name    string  `json:"name"`
	Median  float64 `json:"median"`
	PerHour float64 `json:"per_hour"`
	Judged  string  `json:"judged"` // flat, or why not
}

// sample is what was seen at one time, by name.
type sample struct {
	at     time.Duration
	values map[string]float64
}

// soak runs half of what the machine can do, or -rate, for the time of -for.
func soak() error {
	out := results{{Part: "soak", Scenario: "run", Run: aboutRun(fmt.Sprintf("just soak -for %v", *length))}}
	ctx, cancel := context.WithTimeout(context.Background(), *length+10*time.Minute)
	defer cancel()
	err := systems[0].with(ctx, 1, func(s system) error {
		l, err := s.(*ours).soak(ctx, *length)
		if err != nil {
			return err
		}
		print(l)
		out = append(out, l)
		for _, t := range l.Trends {
			fmt.Fprintf(os.Stderr, "bench: %s: median %s, %+.3g an hour: %s\n", t.Name, digits(t.Median), t.PerHour, t.Judged)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll("../bin", 0o755); err != nil {
		return err
	}
	if err := keep(linesOf("soak"), out); err != nil {
		return err
	}
	return out.write(document, "soak")
}

func (o *ours) soak(ctx context.Context, length time.Duration) (line, error) {
	figures := map[string]float64{"rate": float64(*pace), "hours": length.Hours()}
	if *pace == 0 {
		for range 2 { // the first one warms up
			f, err := inBatches(ctx, o, number(100_000))
			if err != nil {
				return line{}, err
			}
			figures["measured_per_s"] = f["jobs_per_s"]
		}
		figures["rate"] = figures["measured_per_s"] / 2
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var sent int
	var failed error
	p := &probes{asked: map[int64]time.Time{}}
	var wg sync.WaitGroup
	wg.Go(func() { sent, failed = o.load(loading, figures["rate"]); stop() })
	wg.Go(func() { p.ask(loading, o) })
	var samples []sample
	begin, every := time.Now(), max(time.Second, length/360)
	for tick := time.NewTicker(every); loading.Err() == nil && time.Since(begin) < length; {
		select {
		case <-tick.C:
		case <-loading.Done():
			continue
		}
		values, err := o.look(p)
		if err != nil {
			return line{}, err
		}
		samples = append(samples, sample{time.Since(begin), values})
	}
	took := time.Since(begin)
	stop()
	wg.Wait()
	if failed != nil {
		return line{}, failed
	}
	if ctx.Err() != nil {
		return line{}, ctx.Err()
	}
	figures["runs"], figures["runs_per_s"] = float64(sent), float64(sent)/took.Seconds()
	if _, err := o.fixture.settled(ctx, begin); err != nil {
		return line{}, err
	}
	return line{Part: "soak", Scenario: "soak", System: systems[0].name, Figures: figures, Trends: trends(samples, length)}, nil
}

// load enqueues at a rate until ctx ends, in bulk, and answers how many it were. What could not be sent in time is
// sent later: the rate is kept on average.
func (o *ours) load(ctx context.Context, rate float64) (sent int, err error) {
	begin := time.Now()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return sent, nil
		}
		n := min(int(time.Since(begin).Seconds()*rate)-sent, 5000)
		if n <= 0 {
			continue
		}
		if _, err := soaked.EnqueueAll(ctx, o.fixture.client, slices.Repeat([]noArgs{hundred}, n)); err != nil {
			if ctx.Err() != nil {
				return sent, nil
			}
			return sent, fmt.Errorf("after %v: %w", time.Since(begin), err)
		}
		sent += n
	}
}

// probes are runs whose start is timed, one at a time.
type probes struct {
	mu    sync.Mutex
	asked map[int64]time.Time
}

func (p *probes) ask(ctx context.Context, o *ours) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(time.Second / probesPerSecond)
	for n := int64(0); ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			a := hundredOf(int(n))
			a.Report = true
			p.mu.Lock()
			p.asked[n] = time.Now()
			p.mu.Unlock()
			if _, err := soaked.Enqueue(ctx, o.fixture.client, a); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "bench: a probe:", err)
			}
		})
	}
}

// waited is how long probes waited that have started since the last time.
func (p *probes) waited(starts []start) []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []time.Duration
	for _, s := range starts {
		all = append(all, time.Unix(0, s.At).Sub(p.asked[s.N]))
		delete(p.asked, s.N)
	}
	return all
}

// look takes a sample.
func (o *ours) look(p *probes) (map[string]float64, error) {
	starts, err := o.fleet.starts()
	if err != nil {
		return nil, err
	}
	page, err := o.fixture.get("/metrics")
	if err != nil {
		return nil, err
	}
	worker := o.fleet.procs[0]
	text, err := worker.ask("itself")
	if err != nil {
		return nil, err
	}
	var w itself
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return nil, err
	}
	server, wait := o.fixture.server.Process.Pid, p.waited(starts)
	values := map[string]float64{
		"server's memory, MiB": rssOf(server), "server's open files": filesOf(server),
		"data directory, MiB":  float64(weight(filepath.Join(o.fixture.dir, "data"))) / (1 << 20),
		"worker's memory, MiB": rssOf(worker.cmd.Process.Pid), "worker's open files": filesOf(worker.cmd.Process.Pid),
		"worker's heap, MiB": w.Heap / (1 << 20), "worker's goroutines": w.Goroutines,
	}
	if len(wait) > 0 {
		values["start p50, ms"], values["start p99, ms"] = percentile(wait, .5), percentile(wait, .99)
	}
	for name, metric := range map[string]string{"server's heap, MiB": "go_memstats_heap_alloc_bytes", "server's goroutines": "go_goroutines"} {
		_, rest, _ := strings.Cut(page, "\n"+metric+" ")
		value, _, _ := strings.Cut(rest, "\n")
		if values[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("/metrics: %s: %w", metric, err)
		}
	}
	values["server's heap, MiB"] /= 1 << 20
	return values, nil
}

// itself is what a worker process reports: bytes in use or not yet collected, and goroutines.
type itself struct{ Heap, Goroutines float64 }

func aboutItself() itself {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	return itself{float64(heap[0].Value.Uint64()), float64(runtime.NumGoroutine())}
}

// trends are the medians and slopes of what was watched, without the first third. The slope is the median of those
// between all pairs of samples: a hiccup does not bend it. Flat is what by its slope would have risen by less than a
// tenth of its median within the time that counts, or by less than is noise.
func trends(samples []sample, length time.Duration) []trend {
	counted := slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return s.at < length/leftOut })
	var all []trend
	for _, w := range soaking {
		var values, slopes []float64
		for i, s := range counted {
			v, ok := s.values[w.name]
			if !ok {
				continue
			}
			values = append(values, v)
			for _, before := range counted[:i] {
				if u, ok := before.values[w.name]; ok {
					slopes = append(slopes, (v-u)/(s.at-before.at).Hours())
				}
			}
		}
		if len(slopes) == 0 {
			continue
		}
		t := trend{Name: w.name, Median: median(values), PerHour: median(slopes), Judged: "flat"}
		rise, allowed := t.PerHour*(length-length/leftOut).Hours(), max(t.Median/10, w.small)
		switch {
		case rise <= allowed:
		case w.kept && length/leftOut < forgottenAfter:
			t.Judged = "not judged: runs are forgotten after ten minutes, and this was too short"
		default:
			t.Judged = fmt.Sprintf("**rises** by %s; %s would be flat", number3(rise), number3(allowed))
		}
		all = append(all, t)
	}
	return all
}

// trends shows what became of things in a soak.
func (r results) trends(b *strings.Builder) {
	for _, l := range r {
		if len(l.Trends) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s runs in %v, %s a second", number3(l.Figures["runs"]), time.Duration(l.Figures["hours"]*float64(time.Hour)).Round(time.Second), number3(l.Figures["runs_per_s"]))
		if f := l.Figures["measured_per_s"]; f > 0 {
			fmt.Fprintf(b, ": half of the %s measured just before", number3(f))
		}
		b.WriteString(".\n\n| | median | an hour | |\n|---|---|---|---|\n")
		for _, t := range l.Trends {
			fmt.Fprintf(b, "| %s | %s | %+.3g | %s |\n", t.Name, number3(t.Median), t.PerHour, t.Judged)
		}
	}
}
