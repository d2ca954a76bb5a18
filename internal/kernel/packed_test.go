package kernel

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A packed definition is the definition, whichever of its fields are set.
func TestPackCarriesEveryField(t *testing.T) {
	check := func(d *Definition) {
		t.Helper()
		if back := d.Pack(d.Key).Unpack(); !reflect.DeepEqual(back, d) {
			t.Fatalf("field %s is lost: see ownFields\nwrote %+v\nread  %+v", lostField(reflect.ValueOf(d), reflect.ValueOf(back)), d, back)
		}
	}
	check(&Definition{})
	for seed := range uint64(tests.Size(30, 150, 1000)) {
		full := filled[Definition](seed)
		check(&full)
		for i := range reflect.TypeFor[Definition]().NumField() { // without each field, and with it alone
			d, alone := full, Definition{}
			reflect.ValueOf(&d).Elem().Field(i).SetZero()
			reflect.ValueOf(&alone).Elem().Field(i).Set(reflect.ValueOf(full).Field(i))
			check(&d)
			check(&alone)
		}
		for i := range settingsType.NumField() { // with each setting of each owner alone, and what follows from it
			for owner := range 2 {
				d := Definition{Key: "k", Created: full.Created, Cursor: full.Created}
				s := []*Settings{&d.Code, &d.Edits}[owner]
				reflect.ValueOf(s).Elem().Field(i).Set(reflect.ValueOf(full.Code).Field(i))
				check(&d)
				d.Policy = d.Resolve(&Global{})
				check(&d)
			}
		}
	}
}

// A packed run is the run.
func TestPackedRunCarriesEveryField(t *testing.T) {
	check := func(run *Run) {
		t.Helper()
		if back := run.Pack().Unpack(run.ID); !reflect.DeepEqual(back, run) {
			t.Fatalf("field %s is lost: see ownFields\nwrote %+v\nread  %+v", lostField(reflect.ValueOf(run), reflect.ValueOf(back)), run, back)
		}
	}
	check(&Run{})
	for seed := range uint64(tests.Size(100, 400, 3000)) {
		full := filled[Run](seed)
		check(&full)
		for i := range reflect.TypeFor[Run]().NumField() { // without each field, and with it alone
			if !reflect.TypeFor[Run]().Field(i).IsExported() {
				continue
			}
			run, alone := full, Run{Created: full.Created}
			reflect.ValueOf(&run).Elem().Field(i).SetZero()
			reflect.ValueOf(&alone).Elem().Field(i).Set(reflect.ValueOf(full).Field(i))
			check(&run)
			check(&alone)
		}
		begun, err := Run{ID: full.ID, Actor: full.Actor, Due: full.Created.Add(time.Hour)}.Begin(full.Created, "", time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		check(&begun)
	}
}

// A parcel carries its rows, and a damaged one is refused.
func TestParcel(t *testing.T) {
	var p Parcel
	var definitions []*Definition
	var runs []*Run
	for seed := range uint64(20) {
		d, run := filled[Definition](seed), filled[Run](seed)
		definitions, runs = append(definitions, &d), append(runs, &run)
		p.Definitions = append(p.Definitions, d.Pack(d.Key))
		p.Runs = append(p.Runs, ParcelRun{ID: run.ID, Packed: run.Pack()})
		p.Stubs = append(p.Stubs, filled[Stub](seed))
	}
	b := AppendRow(nil, &p)
	row, rest, err := DecodeRow(b)
	if err != nil || len(rest) > 0 {
		t.Fatalf("%v, %d bytes left", err, len(rest))
	}
	back := row.(*Parcel)
	for i := range definitions {
		if !reflect.DeepEqual(back.Rows[i], definitions[i]) || !reflect.DeepEqual(back.Definitions[i].Unpack(), definitions[i]) {
			t.Errorf("definition %d is another one", i)
		}
		if r := back.Runs[i]; !reflect.DeepEqual(r.Row, runs[i]) || !reflect.DeepEqual(r.Packed.Unpack(r.ID), runs[i]) {
			t.Errorf("run %d is another one", i)
		}
	}
	if !reflect.DeepEqual(back.Stubs, p.Stubs) || back.Len() != p.Len() {
		t.Errorf("stubs:\nwrote %+v\nread  %+v", p.Stubs, back.Stubs)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range tests.Size(500, 3000, 20_000) { // whatever is in it: no panic
		damaged := slices.Clone(b)
		for range 1 + random.IntN(3) {
			damaged[random.IntN(len(damaged))] ^= byte(1 << random.IntN(8))
		}
		_, _, _ = DecodeRow(damaged[:len(damaged)-random.IntN(2)])
	}
	unknown := runs[0].Pack()
	mask, n := binary.Uvarint([]byte(unknown.own))
	unknown.own = string(binary.AppendUvarint(nil, mask|1<<63)) + unknown.own[n:]
	if _, err := unknown.unpack(jobs.ID{}); err == nil {
		t.Error("an unknown field is not refused")
	}
}

// What a job has to itself is small: a million jobs differ in their keys, schedules and times.
func TestPackIsSmall(t *testing.T) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 5, time.UTC)
	pack := func(key jobs.Key, cron string) *Packed {
		d := &Definition{Tenant: "default", Key: key, UID: DerivedID(string(key)), Kind: Recurring, App: "a", Created: at, Edited: at, Cursor: at.Add(time.Hour), Anchor: at,
			Revision: 3, Change: 1_000_000, Registered: true, Code: Settings{Schedule: &cron, Args: new(json.RawMessage(`{"n":1}`)), Retries: new(3)}}
		d.Policy = d.Resolve(&Global{})
		return d.Pack(key)
	}
	one, other := pack("billing.close", "0 0 * * *"), pack("billing.open", "30 7 * * MON-FRI")
	if one.like != other.like {
		t.Error("two jobs with the same settings share nothing")
	}
	if len(one.own) > 100 {
		t.Errorf("%d bytes are the job's own", len(one.own))
	}
}

func BenchmarkPack(b *testing.B) {
	d := Definition{Tenant: "default", Key: "billing.close", UID: DerivedID("x"), Kind: Recurring, App: "a", Created: time.Unix(1e9, 5), Code: Settings{Schedule: new("0 0 * * *"), Retries: new(3)}}
	d.Policy = d.Resolve(&Global{})
	p := d.Pack(d.Key)
	b.Run("pack", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.Pack(d.Key)
		}
	})
	run := &Run{Tenant: "default", ID: DerivedID("y"), Job: d.UID, Key: d.Key, App: "a", Kind: Triggered, Args: make([]byte, 100), Due: time.Unix(1e9+1e5, 0), Origin: FromCode, Actor: "worker:a"}
	if *run, _ = run.Begin(time.Unix(1e9, 5), "", time.Time{}); run.Pack() == nil {
		b.Fatal()
	}
	b.Run("pack-run", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			run.Pack()
		}
	})
	q := run.Pack()
	b.Run("unpack-run", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			q.Unpack(run.ID)
		}
		b.ReportMetric(float64(len(q.own)), "B")
	})
	b.Run("unpack", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.Unpack()
		}
	})
}
