package controlplane_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/ledgerfile"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// A ledger of a job that was edited, paused, disabled and in debug mode, with a calendar, intervals, a stopped leader, a
// backfill and the end of daylight saving time, is proven by the schedules in its header. Without one record, it is not.
func TestExportedLedgerIsProven(t *testing.T) {
	tests.WithoutRace(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2000, 2, 26, 0, 0, 0, 0, time.UTC))) // a Saturday, before clocks are set back
		h := newFixture(t)
		defer h.close()
		h.calm()
		edit := func(s kernel.Settings) { t.Helper(); h.must(kernel.Edit{Key: "tick", Set: s}) }
		begin := time.Now()
		h.must(kernel.SetCalendar{Name: "night", Zone: "America/Sao_Paulo", Rules: []string{"22:00-04:00"}})
		code := kernel.Settings{Schedule: new("0 */10 * * * *"), Zone: new("America/Sao_Paulo"), Twice: new(jobs.TwiceBoth), Calendars: new([]string{"night"}),
			MaxConcurrency: new(0), KeepFor: new(time.Duration(0)), KeepSucceeded: new(0), KeepOthers: new(0)}
		h.must(kernel.Register{App: "app", Worker: kernel.NoWorker, Start: true, Job: kernel.Declaration{Key: "tick", Kind: kernel.Recurring, Code: code}})
		time.Sleep(9*time.Hour + 90*time.Second)
		edit(kernel.Settings{Schedule: new("0 5/20 * * * *")})
		time.Sleep(2 * time.Hour)
		h.must(kernel.Pause{Key: "tick", Reason: "stock is counted"})
		time.Sleep(2 * time.Hour)
		h.must(kernel.Resume{Key: "tick"})
		edit(kernel.Settings{Disabled: new(true)})
		time.Sleep(time.Hour)
		edit(kernel.Settings{Disabled: new(false)})
		h.must(kernel.SetCalendar{Name: "night", Zone: "America/Sao_Paulo", Rules: []string{"23:00-03:00", "12:00-13:00"}})
		h.must(kernel.Configure{RecurringDebug: new(true)})
		time.Sleep(2 * time.Hour)
		h.must(kernel.Configure{RecurringDebug: new(false)})
		h.stop()
		time.Sleep(time.Hour) // due times pass, and two edits, before a leader looks
		for _, s := range []string{"0 15 * * * *", "@every 7m"} {
			h.store = h.full
			edit(kernel.Settings{Schedule: &s})
			time.Sleep(2 * time.Hour)
		}
		h.start()
		time.Sleep(2 * time.Hour)
		edit(kernel.Settings{Schedule: new("0 0/30 * * * *"), Calendars: new([]string{})})
		time.Sleep(time.Until(time.Date(2000, 2, 27, 5, 0, 0, 0, time.UTC))) // clocks were set back at 2
		verbs := ops.New(ops.Config{Store: h.store})
		if _, err := verbs.Backfill(h.ctx, ops.Who{Actor: "person:ann", Role: ops.Admin}, ops.Backfill{Key: "tick", From: begin, To: begin.Add(14 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()

		var file bytes.Buffer
		if err := verbs.ExportLedger(h.ctx, ops.Who{Actor: "person:ann", Role: ops.Admin}, ops.LedgerRange{Job: "tick", From: begin}, &file); err != nil {
			t.Fatal(err)
		}
		key, err := verbs.LedgerKey(h.ctx, ops.Who{Actor: "person:bob", Role: ops.Admin})
		if err != nil {
			t.Fatal(err)
		}
		r, err := ledgerfile.Verify(bytes.NewReader(file.Bytes()), key)
		if err != nil || len(r.Problems) > 0 || r.Purged != 0 || r.Open != 0 || r.Proven != 126 || r.Extra != 20 || len(r.Header.Jobs[0].Schedules) != 5 {
			t.Fatalf("the ledger is not proven: %q, %+v, %v", r.Problems, r, err)
		}
		reasons := map[kernel.Reason]bool{}
		var records []ledgerfile.Record
		var head ledgerfile.Header
		lines := strings.Split(strings.TrimSpace(file.String()), "\n")
		if err := json.Unmarshal([]byte(lines[0]), &head); err != nil {
			t.Fatal(err)
		}
		for _, line := range lines[1 : len(lines)-1] {
			var rec ledgerfile.Record
			if err := json.Unmarshal([]byte(line), &rec); err != nil {
				t.Fatal(err)
			}
			reasons[rec.Reason] = true
			records = append(records, rec)
		}
		for _, reason := range []kernel.Reason{"", kernel.MissedCalendar, kernel.MissedPaused, kernel.MissedDisabled, kernel.MissedDebug, kernel.MissedEdited} {
			if !reasons[reason] {
				t.Errorf("no record has the reason %q", reason)
			}
		}

		// A scheduler that loses one due time, signed as it should be.
		own := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
		for i := 0; i < len(records); i += 7 {
			if records[i].Origin == kernel.FromBackfill {
				continue // by another schedule
			}
			var b bytes.Buffer
			w, err := ledgerfile.NewWriter(&b, own, head)
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range slices.Delete(slices.Clone(records), i, i+1) {
				if err := w.Write(rec); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := ledgerfile.Verify(&b, ledgerfile.PublicKey(own))
			at := records[i].First().UTC().Format(time.RFC3339Nano)
			if err != nil || len(r.Problems) == 0 || !strings.Contains(r.Problems[0], "due time "+at+" has no record") {
				t.Errorf("without the record of %s: %+v, %v", at, r.Problems, err)
			}
		}

		// Four hours of it is proven by itself.
		file.Reset()
		if err := verbs.ExportLedger(h.ctx, ops.Who{Actor: "person:ann", Role: ops.Admin}, ops.LedgerRange{From: begin.Add(8 * time.Hour), To: begin.Add(12 * time.Hour)}, &file); err != nil {
			t.Fatal(err)
		}
		if r, err := ledgerfile.Verify(&file, key); err != nil || len(r.Problems) > 0 || r.Proven == 0 || r.Purged != 0 {
			t.Errorf("four hours: %+v, %v", r, err)
		}
	})
}
