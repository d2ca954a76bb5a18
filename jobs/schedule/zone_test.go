package schedule

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// With -long the comparisons with the oracle put every expression to each
// transition and day, where they otherwise put one to each.
// transitionZones covers both hemispheres, half hours (Lord_Howe), negative
// summer time (Dublin), changes at midnight (Sao_Paulo, Beirut, Asuncion,
// Havana, Santiago), the missing day (Apia, Fakaofo), Ramadan (Casablanca,
// El_Aaiun), two hours (Troll), and the moods of governments (Pyongyang,
// Caracas, Istanbul, Volgograd).
var transitionZones = strings.Fields(`
	Africa/Cairo Africa/Casablanca Africa/El_Aaiun Africa/Juba Africa/Sao_Tome Africa/Tunis Africa/Windhoek
	America/Adak America/Argentina/San_Luis America/Asuncion America/Caracas America/Chicago America/Denver
	America/Godthab America/Havana America/Los_Angeles America/Mexico_City America/Miquelon America/Montevideo
	America/New_York America/Port-au-Prince America/Santiago America/Sao_Paulo America/Scoresbysund America/St_Johns
	Antarctica/Casey Antarctica/Troll Asia/Amman Asia/Baku Asia/Beirut Asia/Colombo Asia/Damascus Asia/Dhaka
	Asia/Gaza Asia/Jerusalem Asia/Karachi Asia/Kathmandu Asia/Pyongyang Asia/Tehran Asia/Ulaanbaatar
	Atlantic/Azores Atlantic/Stanley Australia/Adelaide Australia/Lord_Howe Australia/Sydney
	Europe/Berlin Europe/Chisinau Europe/Dublin Europe/Istanbul Europe/London Europe/Moscow Europe/Volgograd
	Pacific/Apia Pacific/Auckland Pacific/Chatham Pacific/Easter Pacific/Fakaofo Pacific/Fiji Pacific/Norfolk
	Pacific/Tongatapu`)

// transitions lists the changes of a zone's offset in 2000-2040, from the
// standard library alone. It looks at every hour, but only once.
func transitions(location *time.Location) []int64 {
	list, _ := transitionsSeen.LoadOrStore(location.String(), sync.OnceValue(func() []int64 { return findTransitions(location) }))
	return list.(func() []int64)()
}

var transitionsSeen sync.Map

func findTransitions(location *time.Location) []int64 {
	var list []int64
	hour := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	end := time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	offset := func(at int64) int {
		_, offset := time.Unix(at, 0).In(location).Zone()
		return offset
	}
	before := offset(hour)
	for ; hour < end; hour += 3600 {
		now := offset(hour)
		if now == before {
			continue
		}
		before = now
		at := hour - 3600
		for offset(at) != now {
			at++
		}
		list = append(list, at)
	}
	return list
}

// aroundClocks is expressions that have something to lose when clocks change.
var aroundClocks = []string{
	"* * * * *", "*/7 * * * *", "0 * * * *", "30 * * * *", "0 */2 * * *", "15 0-4 * * *", "*/20 22-2 * * *",
	"0 0 * * *", "30 0 * * *", "0 1 * * *", "30 1 * * *", "0 2 * * *", "30 2 * * *", "0 3 * * *", "59 23 * * *",
	"0,15,30,45 0,1,2,3 * * *", "0,1,59 0,2,23 * * *", "30 12 * * *", "5 2 * * SUN", "5 1 L * *", "45 2 L-1,1,2 * SUN#2",
	"0 30 2 ? * SUNL", "0 0 0 LW * ?", "0 30 0 ? * FRI-MON", "0 10 2 15W,29W,31W,1W * ? 2000-2040",
	"30 0,1,2 31,30,29,1 * *", "0 0 1-7 * 0", "0 2 */2 * */3", "30 23 * 12 *",
}

// some is one in so many of a list, from a random one on.
func some[T any](random *rand.Rand, list []T, every int) (part []T) {
	for i := random.IntN(every); i < len(list); i += every {
		part = append(part, list[i])
	}
	return part
}

// TestOracleAtTransitions looks at the two days before and after every transition, with one expression or, at length,
// with all of them.
func TestOracleAtTransitions(t *testing.T) {
	tests.WithoutRace(t)
	random := rand.New(rand.NewPCG(3, 14))
	count := 0
	for _, name := range transitionZones {
		location := locationOf(name)
		for _, transition := range some(random, transitions(location), tests.Size(25, 1, 1)) {
			exprs := aroundClocks
			if !tests.Rough() {
				exprs = []string{exprs[random.IntN(len(exprs))]}
			}
			ticks := watch(location, transition-2*daySeconds-edge, transition+2*daySeconds+edge, 60)
			for _, expr := range exprs {
				spec := Spec{Expr: expr, Zone: name, Gap: Gap(random.IntN(5) % 3), Overlap: Overlap(random.IntN(5) % 3)}
				s, err := Parse(spec)
				if err != nil {
					t.Fatal(err)
				}
				if difference := newOracle(spec).compare(s, ticks, 60); difference != "" {
					t.Fatalf("%+v: %s", spec, difference)
				}
				count++
			}
		}
	}
	t.Logf("%d comparisons", count)
}

// TestOracleBySeconds looks closer: every second of the hours around a
// transition, for expressions with seconds.
func TestOracleBySeconds(t *testing.T) {
	tests.WithoutRace(t)
	random := rand.New(rand.NewPCG(2, 71))
	exprs := []string{
		"* * * * * *", "*/7 * * * * *", "30 30 2 * * *", "* 30 1,2 * * *", "59 59 0,1,23 * * *",
		"0,59 0,59 * * * ?", "*/20 0 0 * * ?", "15 */30 1-3 ? * *",
	}
	for _, name := range some(random, transitionZones, tests.Size(10, 1, 1)) {
		location := locationOf(name)
		list := transitions(location)
		for n := 0; n < 3 && len(list) > 0; n++ {
			transition := list[random.IntN(len(list))]
			ticks := watch(location, transition-4*3600-edge, transition+4*3600+edge, 1)
			spec := Spec{Expr: exprs[random.IntN(len(exprs))], Zone: name, Gap: Gap(random.IntN(3)), Overlap: Overlap(random.IntN(3))}
			s, err := Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			if difference := newOracle(spec).compare(s, ticks, 1); difference != "" {
				t.Fatalf("%+v: %s", spec, difference)
			}
			if !tests.Rough() {
				break
			}
		}
	}
}

// TestZoneTables checks what windows rely on: a window is trimmed or
// stretched with a look at its neighbours only. It also walks the table of each
// zone against the standard library.
func TestZoneTables(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 61))
	for name := range database() {
		z, err := loadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		location := locationOf(name)
		for i := 1; i < len(z.spans)-1; i++ {
			change := z.spans[i].offset - z.spans[i-1].offset
			if i < len(z.spans)-2 {
				next := z.spans[i+1].offset - z.spans[i].offset
				if z.spans[i+1].start-z.spans[i].start < max(change, -change)+max(next, -next) {
					t.Errorf("%s: changes at %v and %v are too close", name, time.Unix(z.spans[i].start, 0).UTC(), time.Unix(z.spans[i+1].start, 0).UTC())
				}
			}
			for _, at := range []int64{z.spans[i].start - 1, z.spans[i].start} {
				if _, offset := time.Unix(at, 0).In(location).Zone(); z.local(at) != at+int64(offset) {
					t.Errorf("%s at %v: the table is wrong", name, time.Unix(at, 0).UTC())
				}
			}
		}
		for range 200 {
			at := random.Int64N(endSecond)
			if _, offset := time.Unix(at, 0).In(location).Zone(); z.local(at) != at+int64(offset) {
				t.Errorf("%s at %v: the table is wrong", name, time.Unix(at, 0).UTC())
			}
		}
	}
}

// TestOneDatabase holds two machines to the same answer, whatever they have for a database: on the one of the child
// process, Berlin keeps universal time.
func TestOneDatabase(t *testing.T) {
	if os.Getenv("ZONEINFO_IS_WRONG") == "" {
		dir := t.TempDir()
		file, err := database()["UTC"].Open()
		if err != nil {
			t.Fatal(err)
		}
		utc, err := io.ReadAll(file)
		if err := errors.Join(err, os.Mkdir(dir+"/Europe", 0o700), os.WriteFile(dir+"/Europe/Berlin", utc, 0o600)); err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0], "-test.run=^TestOneDatabase$")
		child.Env = append(os.Environ(), "ZONEINFO="+dir, "ZONEINFO_IS_WRONG=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	noon := at(t, "2026-07-01T12:00:00Z")
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil || noon.In(berlin).Hour() != 12 {
		t.Fatalf("this machine knows better: %v, %v", noon.In(berlin), err)
	}
	s, err := Parse(Spec{Expr: "0 12 * * *", Zone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	if due, _ := s.Next(noon.Add(-12 * time.Hour)); !due.Equal(noon.Add(-2 * time.Hour)) {
		t.Errorf("noon in Berlin is at %v", due)
	}
}
