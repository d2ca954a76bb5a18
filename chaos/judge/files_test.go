package judge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// What is written down is read again as it was, in order of time, and without the half line of a process that was
// killed while it wrote.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(n int64) Moment { return Moment{Wall: 1e18 + n, Mono: n} }
	want := &Case{
		Setup:   Setup{Name: "n", Store: "raft", Began: at(1), Healed: at(9), Faults: 1, Lease: 15 * time.Second},
		Specs:   []Spec{{Key: "a", Schedule: "* * * * * *", Start: time.Unix(5, 0).UTC(), MaxConcurrency: 2, Limits: []Limit{{"l", 3}}}},
		Journal: []Line{{What: Start, Run: "r", At: at(2)}, {What: End, Run: "r", At: at(3), Outcome: "ok"}},
		History: []Op{{What: Create, Run: "r", Invoked: at(1), Returned: at(2), Outcome: OK}, {What: Edit, Invoked: at(4), Spec: &Spec{Key: "a"}}},
		Faults:  []Fault{{Kind: Kill, Role: Control, Target: "n1", PID: 7, Begin: at(3), End: at(4)}},
		Stores:  []Store{{At: at(9), Runs: []Run{{ID: "r", State: "Succeeded", Result: json.RawMessage(`{"attempt":1}`), Moves: []Move{{State: "Enqueued", At: time.Unix(1, 2).UTC()}}}}, Missed: []Missed{{Key: "a", Count: 3}}, Definitions: []Definition{{Key: "a"}}}},
	}
	if err := want.Save(dir); err != nil {
		t.Fatal(err)
	}
	w, err := Open(dir, JournalFile("w2"))
	if err != nil {
		t.Fatal(err)
	}
	first := Line{What: Start, Run: "q", At: at(1)}
	if err := w.Write(first); err != nil {
		t.Fatal(err)
	}
	if _, err := w.file.WriteString(`{"what":"st`); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want.Journal = append([]Line{first}, want.Journal...)
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v\nwrote\n%+v", got, want)
	}
	if err := os.WriteFile(filepath.Join(dir, FaultFile("x")), []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("nonsense is read as if it were nothing")
	}
}

// The steady clock of a moment goes on.
func TestNow(t *testing.T) {
	if a, b := Now(), Now(); b.Mono < a.Mono || a.Wall == 0 {
		t.Errorf("%+v and then %+v", a, b)
	}
}
