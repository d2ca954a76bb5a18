package replica

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A node applies its own commands to the last bit as others decode them: else their rows would differ.
func TestOwnCommandsAreWhatOthersRead(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 1, time.UTC)
	dues := []time.Time{{}, noon, time.Now(), noon.In(time.FixedZone("x", 3600)), time.Unix(0, 0), time.Unix(0, 0).UTC(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)}
	bytes := [][]byte{nil, {}, []byte(`{"n":1}`), []byte("not JSON")}
	texts := []string{"", "k", "\xff"}
	five, second := 5, time.Second
	rng := rand.New(rand.NewPCG(1, 22))
	some := func(n int) int { return rng.IntN(n) }
	kept, all := 0, 0
	for range 5000 {
		commands := []kernel.Command{
			kernel.Create{ID: jobs.ID{byte(some(9))}, Key: jobs.Key(texts[some(3)]), Args: bytes[some(4)], Due: dues[some(len(dues))], Delay: time.Duration(some(9)), Unique: texts[some(3)], UniqueFor: second,
				Idempotency: texts[some(3)], Origin: kernel.FromPerson, Parent: jobs.ID{byte(some(2))}, Priority: &five, Timeout: &second, Trace: texts[some(3)], Pin: texts[some(3)], Total: uint32(some(2))},
			kernel.Start{ID: jobs.ID{1}, Worker: texts[some(3)], Attempt: uint32(some(3))},
			kernel.Finish{ID: jobs.ID{1}, Worker: texts[some(3)], Attempt: 1, Outcome: kernel.Outcome(some(4)), Result: bytes[some(4)], Error: texts[some(3)], Delay: time.Duration(some(3)), Running: some(2) == 0, Code: texts[some(3)]},
			kernel.Pause{Key: "k", Until: dues[some(len(dues))]},
		}
		rng.Shuffle(len(commands), func(i, j int) { commands[i], commands[j] = commands[j], commands[i] })
		var batch []kernel.Envelope
		for _, k := range commands[:1+some(2)] {
			batch = append(batch, kernel.Envelope{ID: jobs.ID{2}, Tenant: "default", Actor: texts[some(3)], Reason: texts[some(3)], At: noon, Command: k})
		}
		all++
		if !readsBack(batch) {
			continue
		}
		kept++
		_, body, err := openEntry(AppendEntry(nil, kernel.FirstApplyVersion, batch), kernel.ApplyVersion)
		if err != nil {
			t.Fatal(err)
		}
		if read, err := kernel.DecodeEnvelopes(body); err != nil || !reflect.DeepEqual(read, batch) {
			t.Fatalf("others read %+v, %v,\nand this node would apply %+v", read, err, batch)
		}
	}
	if kept < all/10 || kept > all*9/10 {
		t.Errorf("%d of %d batches are applied as they were written", kept, all)
	}
}

// Proposed commands are taken once.
func TestOwnCommandsAreTakenOnce(t *testing.T) {
	var o own
	entry := []byte{1}
	o.note(entry, []kernel.Envelope{{Command: kernel.Start{}}})
	if len(o.take(entry)) != 1 || o.take(entry) != nil {
		t.Error("they were not there, or not just once")
	}
}
