package peers

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reugn/go-quartz/quartz"

	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

var figures = flag.Bool("figures", false, "print the tables of figures.md")

// walks are expressions to take one due time after another of, in the dialect of each engine.
var walks = []struct{ name, zone, crontab, quartz string }{
	{"every 5 minutes", "UTC", "0 */5 * * * *", "0 */5 * * * ?"},
	{"on weekdays, 9 to 17", "UTC", "0 0 9-17 * * MON-FRI", "0 0 9-17 ? * MON-FRI"},
	{"29 February", "UTC", "0 0 0 29 2 *", "0 0 0 29 2 ?"},
	{"every 5 minutes", "Europe/Berlin", "0 */5 * * * *", "0 */5 * * * ?"},
	{"02:30", "Europe/Berlin", "0 30 2 * * *", "0 30 2 * * ?"},
	{"29 February", "Europe/Berlin", "0 0 0 29 2 *", "0 0 0 29 2 ?"},
}

var names = []string{"ours", "go-quartz", "robfig/cron", "gronx"}

// walk takes due times of expression i, and begins anew where there is none.
func walk(b *testing.B, i int, name string) {
	expr := walks[i].crontab
	if name == "go-quartz" {
		expr = walks[i].quartz
	}
	zone, err := time.LoadLocation(walks[i].zone)
	if err != nil {
		b.Fatal(err)
	}
	next, err := engines[name](expr, zone)
	if err != nil {
		b.Fatal(err)
	}
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for after := start; b.Loop(); {
		if after = next(after); after.IsZero() {
			after = start
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for i, w := range walks {
		for _, name := range names {
			b.Run(strings.ReplaceAll(w.name+", "+w.zone+", "+name, "/", "."), func(b *testing.B) { walk(b, i, name) })
		}
	}
}

const million = 1_000_000

// queues take what is due first and put it back, due again within a day. Each is built for so many things, and then
// does one such step at a time.
var queues = []struct {
	name  string
	size  int
	build func(size int) (step func(later time.Duration))
}{
	{"`Agenda`", million, func(size int) func(time.Duration) {
		var a schedule.Agenda[int32]
		for i := range size {
			a.Push(time.Unix(int64(i), 0), int32(i))
		}
		return func(later time.Duration) {
			due, id, _ := a.Pop()
			a.Push(due.Add(later), id)
		}
	}},
	{"`container/heap`", million, func(size int) func(time.Duration) {
		h := &plainHeap{}
		for i := range size {
			heap.Push(h, due{time.Unix(int64(i), 0), int32(i)})
		}
		return func(later time.Duration) {
			d := heap.Pop(h).(due)
			heap.Push(h, due{d.at.Add(later), d.id})
		}
	}},
	// It looks for the key among all others at each push: to fill it with a million takes half a day. It takes no
	// entries but its scheduler's own, and those cannot be given another time: what is popped goes back to the top.
	{"go-quartz's queue of 10,000", 10_000, func(size int) func(time.Duration) {
		q := quartz.NewJobQueue()
		scheduler, err := quartz.NewStdScheduler(quartz.WithQueue(q, &sync.Mutex{}))
		for i := 0; i < size && err == nil; i++ {
			job := quartz.NewJobDetail(rung(nil), quartz.NewJobKey(fmt.Sprint(i)))
			err = scheduler.ScheduleJob(job, quartz.NewSimpleTrigger(time.Duration(i+1)*time.Hour))
		}
		if err != nil {
			panic(err)
		}
		return func(time.Duration) {
			job, err := q.Pop()
			if err != nil {
				panic(err)
			}
			if err := q.Push(job); err != nil {
				panic(err)
			}
		}
	}},
}

type due struct {
	at time.Time
	id int32
}

type plainHeap []due

func (h plainHeap) Len() int           { return len(h) }
func (h plainHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h plainHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *plainHeap) Push(x any)        { *h = append(*h, x.(due)) }
func (h *plainHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// turn works a queue that holds what is due within its size in seconds.
func turn(b *testing.B, i int) {
	step := queues[i].build(queues[i].size)
	random := rand.New(rand.NewPCG(1, 1))
	within := int64(queues[i].size) * 2
	for range queues[i].size { // until the order of filling is forgotten
		step(time.Duration(1+random.Int64N(within)) * time.Second)
	}
	b.ReportAllocs()
	for b.Loop() {
		step(time.Duration(1+random.Int64N(within)) * time.Second)
	}
}

func BenchmarkQueue(b *testing.B) {
	for i, q := range queues {
		b.Run(strings.ReplaceAll(q.name, "/", "."), func(b *testing.B) { turn(b, i) })
	}
}

// TestFigures prints the tables of figures.md: our time, and how many times longer the others take, all measured in
// this run.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("-figures is not given")
	}
	measure := func(f func(*testing.B)) float64 {
		r := testing.Benchmark(f)
		if r.N == 0 {
			t.Fatal("a benchmark has failed")
		}
		return float64(r.T.Nanoseconds()) / float64(r.N)
	}
	table := &strings.Builder{}
	fmt.Fprintf(table, "| next due time | zone | ours | go-quartz | robfig/cron | gronx |\n| --- | --- | --- | --- | --- | --- |\n")
	for i, w := range walks {
		fmt.Fprintf(table, "| %s | %s |", w.name, w.zone)
		var ours float64
		for _, name := range names {
			ns := measure(func(b *testing.B) { walk(b, i, name) })
			if name == "ours" {
				ours = ns
				fmt.Fprintf(table, " %.0f ns |", ns)
				continue
			}
			fmt.Fprintf(table, " %s |", times(ns/ours))
		}
		fmt.Fprintln(table)
	}
	fmt.Fprintf(table, "\n| pop and push | of a million | against `Agenda` |\n| --- | --- | --- |\n")
	var ours float64
	for i, q := range queues {
		ns := measure(func(b *testing.B) { turn(b, i) })
		if i == 0 {
			ours = ns
		}
		fmt.Fprintf(table, "| %s | %.0f ns | %s |\n", q.name, ns, times(ns/ours))
	}
	t.Log("\n" + table.String())
}

func times(ratio float64) string {
	if ratio < 10 {
		return fmt.Sprintf("%.1f×", ratio)
	}
	return fmt.Sprintf("%.0f×", ratio)
}
