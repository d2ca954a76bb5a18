package kernel

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// What comes from a network or an old file is never trusted: it is read or refused, without a panic, and without
// taking much more memory than it has bytes.

const (
	fuzzFactor = 64      // bytes of memory for a byte of input
	fuzzSpare  = 1 << 16 // what a run of the test takes by itself
)

func bounded(t *testing.T, n int, decode func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	decode()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(n*fuzzFactor+fuzzSpare) {
		t.Fatalf("%d bytes of input took %d bytes of memory", n, took)
	}
}

func FuzzDecodeEnvelopes(f *testing.F) {
	for seed := range uint64(3) {
		f.Add(AppendEnvelopes(nil, envelopesOf(seed, commands(seed)...)))
		for _, c := range commands(seed) {
			f.Add(AppendEnvelopes(nil, envelopesOf(seed, c)))
		}
	}
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var batch []Envelope
		var err error
		bounded(t, len(b), func() { batch, err = DecodeEnvelopes(b) })
		if err != nil {
			return
		}
		for i := range batch {
			_ = batch[i].Check()
		}
		once := AppendEnvelopes(nil, batch)
		again, err := DecodeEnvelopes(once)
		if err != nil || !bytes.Equal(AppendEnvelopes(nil, again), once) {
			t.Fatalf("reading and writing is not stable: %v", err)
		}
	})
}

func FuzzDecodeRow(f *testing.F) {
	for seed := range uint64(3) {
		for _, row := range wireRows(seed) {
			f.Add(AppendRow(nil, row))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var row Row
		var rest []byte
		var err error
		bounded(t, len(b), func() { row, rest, err = DecodeRow(b) })
		if err != nil {
			return
		}
		if len(rest) >= len(b) {
			t.Fatal("a row of no bytes")
		}
		_ = row.Ref()
		once := AppendRow(nil, row)
		again, _, err := DecodeRow(once)
		if err != nil || !bytes.Equal(AppendRow(nil, again), once) {
			t.Fatalf("reading and writing is not stable: %v", err)
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	for seed := range uint64(3) {
		effect := filled[Effect](seed)
		f.Add(AppendAnswer(nil, &effect, nil))
	}
	f.Add(AppendAnswer(nil, nil, Refuse(jobs.Stale, "too late")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var effect Effect
		var refusal, bad error
		bounded(t, len(b), func() { effect, refusal, _, bad = DecodeAnswer(b) })
		if bad != nil {
			return
		}
		once := AppendAnswer(nil, &effect, refusal)
		effect, refusal, _, bad = DecodeAnswer(once)
		if bad != nil || !bytes.Equal(AppendAnswer(nil, &effect, refusal), once) {
			t.Fatalf("reading and writing is not stable: %v", bad)
		}
	})
}

// The smallest things on the wire that become large in memory, in a list as long as a message may be.
func TestDecodingIsBounded(t *testing.T) {
	var zero Effect
	zero.Runs, zero.Definitions, zero.Missed = []*Run{{}}, []*Definition{{}}, []*Missed{{}}
	one := AppendAnswer(nil, &zero, nil)
	hungry := map[string][]byte{"answer of zeros": one}
	for what, list := range map[string]int{"runs": 1, "definitions": 2, "missed": 3} {
		const n = 100_000
		b := make([]byte, list)                           // no code, and empty lists before this one
		b = append(b, 0x80|n&0x7f, 0x80|n>>7&0x7f, n>>14) // its length
		hungry[what+" of no bytes"] = append(b, make([]byte, 4*n)...)
	}
	for what, b := range hungry {
		t.Run(what, func(t *testing.T) {
			bounded(t, len(b), func() { _, _, _, _ = DecodeAnswer(b) })
		})
	}
	row := AppendRow(nil, &Run{})
	if len(row) < leastRun {
		t.Errorf("a run of zeros has %d bytes on the wire", len(row))
	}
	if n := len(AppendRow(nil, &Definition{})); n < leastDefinition {
		t.Errorf("a definition of zeros has %d bytes on the wire", n)
	}
	if n := len(AppendRow(nil, &Missed{})); n < leastMissed {
		t.Errorf("a missed range of zeros has %d bytes on the wire", n)
	}
}
