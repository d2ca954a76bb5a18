package kernel

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// What a job's way costs on the wire: one commit of a thousand commands of a kind, figures for each command.
func BenchmarkWire(b *testing.B) {
	const n = 1000
	kinds := map[string]func(i int) Command{
		"create": func(i int) Command {
			return Create{ID: DerivedID(fmt.Sprint(i)), Key: "billing.charge", Args: []byte(`{"customer":"c7","cents":1200}`), Origin: FromCode}
		},
		"start": func(i int) Command { return Start{ID: DerivedID(fmt.Sprint(i)), Worker: "billing-1-5f2a", Attempt: 1} },
		"finish": func(i int) Command {
			return Finish{ID: DerivedID(fmt.Sprint(i)), Worker: "billing-1-5f2a", Attempt: 1, Outcome: OutcomeSuccess}
		},
	}
	for _, kind := range []string{"create", "claim", "finish"} {
		batch := make([]Envelope, n)
		for i := range batch {
			batch[i] = Envelope{ID: DerivedID("e", fmt.Sprint(i)), Tenant: jobs.DefaultTenant, Actor: "worker:billing-1", At: noon, Command: kinds[kind](i)}
		}
		wire := AppendEnvelopes(nil, batch)
		b.Run(kind+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, len(wire))
			for i := 0; i < b.N; i += n {
				buf = AppendEnvelopes(buf[:0], batch)
			}
			b.ReportMetric(float64(len(wire))/n, "wire-B/op")
		})
		b.Run(kind+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i += n {
				if _, err := DecodeEnvelopes(wire); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run := benchRun()
	wire := AppendRow(nil, run)
	b.Run("run/encode", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, len(wire))
		for b.Loop() {
			buf = AppendRow(buf[:0], run)
		}
		b.ReportMetric(float64(len(wire)), "wire-B/op")
	})
	b.Run("run/decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := DecodeRow(wire); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// benchRun is a run as most are: it has gone through its three states.
func benchRun() *Run {
	run := Run{Tenant: jobs.DefaultTenant, ID: DerivedID("i"), Job: DerivedID("j"), Key: "billing.charge", App: "billing", Kind: Triggered, Revision: 3,
		Origin: FromCode, Actor: "client:shop", Args: []byte(`{"customer":"c7","cents":1200}`), Due: noon,
		Terms: Terms{Retries: 3, RetryDelay: time.Second, RetryDelayMax: time.Hour, Timeout: time.Hour, OnLost: jobs.LostRetry, LeaseLost: jobs.LeaseContinue, Overlap: jobs.OverlapQueue}}
	run, _ = run.Begin(noon, "", time.Time{})
	run, _ = run.Start(noon.Add(time.Millisecond), "billing-1-5f2a")
	run, _ = run.Succeed(noon.Add(2*time.Millisecond), []byte(`{"ok":true}`))
	return &run
}

func BenchmarkCreateCheck(b *testing.B) {
	c := Create{ID: jobs.ID{1}, Key: "billing.charge", Args: []byte(`{"customer":"c7","cents":1200}`)}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckArgs(b *testing.B) {
	args := []byte(`{"customer":"c7","cents":1200,"lines":[{"sku":"a","n":1},{"sku":"b","n":2}]}`)
	b.SetBytes(int64(len(args)))
	b.ReportAllocs()
	for b.Loop() {
		if err := CheckArgs(args); err != nil {
			b.Fatal(err)
		}
	}
}
