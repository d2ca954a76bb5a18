package kernel

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

var update = flag.Bool("update", false, "write the golden files anew")

// commands are one of each command, without a zero field.
func commands(seed uint64) []Command {
	return []Command{
		filled[Register](seed), filled[Edit](seed), filled[Pause](seed), filled[Resume](seed), filled[Create](seed),
		filled[Fire](seed), filled[Release](seed), filled[Start](seed), filled[Unstart](seed), filled[Finish](seed), filled[Returned](seed),
		filled[Checkpoint](seed), filled[Expire](seed), filled[Cancel](seed), filled[Configure](seed), filled[Lead](seed),
		filled[Refresh](seed), filled[Forget](seed), filled[Hand](seed), filled[Delete](seed), filled[Grant](seed),
		filled[Revoke](seed), filled[SignIn](seed), filled[SignOut](seed), filled[Touch](seed), filled[PurgeAudit](seed),
		filled[Invite](seed), filled[Join](seed), filled[Members](seed), filled[Expand](seed),
		filled[SetCalendar](seed), filled[DropCalendar](seed),
		filled[Drain](seed), filled[Mark](seed),
		filled[Expect](seed), filled[Report](seed), filled[Purge](seed),
		filled[Backfill](seed), filled[Notify](seed),
		filled[FinalizeUpgrade](seed), filled[SetTenant](seed), filled[SuspendTenant](seed), filled[DeleteTenant](seed), filled[DropTenant](seed), filled[LedgerKey](seed),
		filled[SetAlarmTarget](seed), filled[DropAlarmTarget](seed), filled[SetAlarmRule](seed), filled[DropAlarmRule](seed), filled[RaiseAlarm](seed), filled[EndAlarm](seed), filled[SentAlarm](seed), filled[PurgeAlarms](seed),
		filled[Exported](seed), filled[Denied](seed), filled[OpenBatch](seed), filled[CloseBatch](seed), filled[CheckIn](seed),
	}
}

// wireRows are one row of each kind, without a zero field.
func wireRows(seed uint64) []Row {
	return []Row{
		new(filled[Definition](seed)), new(filled[Run](seed)), new(filled[Gate](seed)), new(filled[UniqueKey](seed)),
		new(filled[Missed](seed)), new(filled[Tally](seed)), new(filled[Global](seed)), new(filled[StoreRow](seed)),
		new(filled[Token](seed)), new(filled[Session](seed)), new(filled[Audit](seed)), new(filled[History](seed)),
		new(filled[Calendar](seed)), new(filled[AlarmSettings](seed)), new(filled[Alarm](seed)),
	}
}

func typeName(v any) string { return strings.TrimPrefix(reflect.TypeOf(v).String(), "*") }

// envelopesOf wraps commands as neighbours in a batch are: some words shared, some not.
func envelopesOf(seed uint64, all ...Command) []Envelope {
	batch := make([]Envelope, len(all))
	for i, c := range all {
		batch[i] = Envelope{ID: DerivedID(fmt.Sprint(seed, i)), Tenant: "acme", Actor: "worker:w1", Reason: "because", Command: c}
		if i%3 == 1 {
			batch[i].Tenant, batch[i].At = "other", noon.Add(time.Duration(i))
		}
		if i%4 == 2 {
			batch[i].Actor, batch[i].Reason = "person:ann", ""
		}
	}
	return batch
}

// No field is forgotten, whatever its value: what is written is what is read.
func TestWireCarriesEveryField(t *testing.T) {
	for seed := range uint64(tests.Size(50, 300, 300)) {
		batch := envelopesOf(seed, commands(seed)...)
		for i := range batch { // runs of the scheduler, of one sender, and of others
			if i%5 > 1 {
				s := filled[Sender](uint64(i / 5))
				batch[i].Sender = &s
			}
		}
		back, err := DecodeEnvelopes(AppendEnvelopes(nil, batch))
		if err != nil || !reflect.DeepEqual(back, batch) {
			for i := range back {
				if !reflect.DeepEqual(back[i], batch[i]) {
					t.Errorf("%s: field %s is lost: add it to internal/kernel/wire.go or wire_rows.go", typeName(batch[i].Command),
						lostField(reflect.ValueOf(batch[i]), reflect.ValueOf(back[i])))
				}
			}
			t.Fatal(err)
		}
		for _, row := range wireRows(seed) {
			b := AppendRow([]byte("before"), row)
			back, rest, err := DecodeRow(append(b, "after"...)[len("before"):])
			if err != nil || string(rest) != "after" || !reflect.DeepEqual(back, row) {
				t.Fatalf("%s: field %s is lost: add it to internal/kernel/wire_rows.go (%v)", typeName(row), lostField(reflect.ValueOf(row), reflect.ValueOf(back)), err)
			}
		}
		effect := filled[Effect](seed)
		back2, refusal, rest, err := DecodeAnswer(append(AppendAnswer(nil, &effect, nil), "after"...))
		if err != nil || refusal != nil || string(rest) != "after" || !reflect.DeepEqual(back2, effect) {
			t.Fatalf("effect: %v\nwrote %+v\nread  %+v", err, effect, back2)
		}
	}
}

// lostField is the path of the first field in which two values of a type differ.
func lostField(a, b reflect.Value) string {
	switch {
	case !a.IsValid() || !b.IsValid() || a.Type() != b.Type():
		return ""
	case a.Kind() == reflect.Pointer || a.Kind() == reflect.Interface:
		return lostField(a.Elem(), b.Elem())
	case a.Kind() == reflect.Struct && a.Type() != reflect.TypeFor[time.Time]():
		for i := range a.NumField() {
			if x, y := a.Field(i), b.Field(i); x.CanInterface() && !reflect.DeepEqual(x.Interface(), y.Interface()) {
				return strings.TrimSuffix(a.Type().Field(i).Name+"."+lostField(x, y), ".")
			}
		}
	}
	return ""
}

// Rows of nothing but zeros come back as such.
func TestWireCarriesZeros(t *testing.T) {
	for _, row := range []Row{&Definition{}, &Run{}, &Gate{}, &UniqueKey{}, &Missed{}, &Tally{}, &Global{}, &StoreRow{}, &Token{}, &Session{}, &Audit{}, &History{}} {
		back, rest, err := DecodeRow(AppendRow(nil, row))
		if err != nil || len(rest) > 0 || !reflect.DeepEqual(back, row) {
			t.Errorf("%s: %+v, %v", typeName(row), back, err)
		}
	}
	for _, c := range commands(1) {
		zero := reflect.Zero(reflect.TypeOf(c)).Interface().(Command)
		back, err := DecodeEnvelopes(AppendEnvelopes(nil, []Envelope{{Command: zero}}))
		if err != nil || !reflect.DeepEqual(back, []Envelope{{Command: zero}}) {
			t.Errorf("%s: %+v, %v", typeName(c), back, err)
		}
	}
	if back, err := DecodeEnvelopes(AppendEnvelopes(nil, nil)); err != nil || len(back) != 0 {
		t.Errorf("no envelopes: %v, %v", back, err)
	}
}

// A pointer to a zero is not nil: "explicitly 0" stays apart from "says nothing".
func TestWireKeepsZeroApartFromNothing(t *testing.T) {
	s := Settings{Retries: new(0), Disabled: new(false), Name: new(""), Timeout: new(time.Duration(0)), Tags: new([]string(nil)), Start: new(time.Time{})}
	back, err := DecodeEnvelopes(AppendEnvelopes(nil, []Envelope{{Command: Edit{Set: s}}}))
	if err != nil {
		t.Fatal(err)
	}
	if got := back[0].Command.(Edit).Set; !reflect.DeepEqual(got, s) {
		t.Errorf("wrote %v, read %v", s.Given(), got.Given())
	}
}

func TestWireCarriesRefusals(t *testing.T) {
	for _, c := range []jobs.Code{jobs.NotFound, jobs.Conflict, jobs.Stale, jobs.BadInput, jobs.Forbidden, jobs.Unknown, jobs.Unavailable, jobs.Exhausted} {
		b := AppendAnswer(nil, nil, fmt.Errorf("claim: %w", Refuse(c, "because of %d", 7)))
		_, refusal, rest, err := DecodeAnswer(b)
		if err != nil || len(rest) > 0 || !errors.Is(refusal, c) || refusal.Error() != "claim: because of 7" {
			t.Errorf("%s arrives as %v, %v", c, refusal, err)
		}
	}
	if _, refusal, _, _ := DecodeAnswer(AppendAnswer(nil, nil, errors.New("disk on fire"))); !errors.Is(refusal, jobs.Unknown) {
		t.Errorf("an error without a code arrives as %v", refusal)
	}
}

// The bytes themselves: what is in logs and archives stays readable. A change of this file is a change of the
// form; only additions at the end of a row are free of charge.
func TestWireGolden(t *testing.T) {
	const path = "testdata/wire.txt"
	var out bytes.Buffer
	say := func(kind string, v any, b []byte) {
		fmt.Fprintf(&out, "%s %s %s\n", kind, typeName(v), hex.EncodeToString(b))
	}
	for _, c := range commands(7) {
		if k, is := c.(Create); is {
			k.nextCreate = nextCreate{}
			c = k
		}
		say("command", c, AppendCommand(nil, c))
	}
	for _, r := range wireRows(7) {
		if run, is := r.(*Run); is {
			run.nextRun = nextRun{}
		}
		say("row", r, AppendRow(nil, r))
	}
	effect := filled[Effect](7)
	for _, run := range effect.Runs {
		run.nextRun = nextRun{}
	}
	say("answer", effect, AppendAnswer(nil, &effect, nil))
	say("answer", &Refusal{}, AppendAnswer(nil, nil, Refuse(jobs.Stale, "too late")))
	say("envelopes", []Envelope{}, AppendEnvelopes(nil, envelopesOf(7, Cancel{ID: jobs.ID{1}}, Start{ID: jobs.ID{1}, Worker: "w", Attempt: 1}, Resume{Key: "k"}, Lead{1, "n"})))
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("line %d of %s differs (-update writes it anew)\nis   %s\nwant %s", i+1, path, at(got, i), at(wanted, i))
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// Cut off anywhere, a message is refused, and never taken for a shorter one.
func TestWireTruncated(t *testing.T) {
	b := AppendEnvelopes(nil, envelopesOf(3, commands(3)...))
	for n := range b {
		if _, err := DecodeEnvelopes(b[:n]); !errors.Is(err, jobs.BadInput) {
			t.Fatalf("envelopes cut to %d of %d bytes: %v", n, len(b), err)
		}
	}
	if _, err := DecodeEnvelopes(append(b, 0)); !errors.Is(err, jobs.BadInput) {
		t.Errorf("envelopes with a byte too many: %v", err)
	}
	for _, row := range wireRows(3) {
		b := AppendRow(nil, row)
		for n := range b {
			if _, _, err := DecodeRow(b[:n]); !errors.Is(err, jobs.BadInput) {
				t.Fatalf("%s cut to %d of %d bytes: %v", typeName(row), n, len(b), err)
			}
		}
	}
	effect := filled[Effect](3)
	for _, b := range [][]byte{AppendAnswer(nil, &effect, nil), AppendAnswer(nil, nil, Refuse(jobs.Stale, "too late"))} {
		for n := range b {
			if _, _, _, bad := DecodeAnswer(b[:n]); !errors.Is(bad, jobs.BadInput) {
				t.Fatalf("answer cut to %d of %d bytes: %v", n, len(b), bad)
			}
		}
	}
}

// A row that an older program wrote ends earlier. Cut at the end of a field, with a frame that says so, it reads as
// a row whose further fields are zero; cut elsewhere it is refused.
func TestWireShorterRows(t *testing.T) {
	for _, row := range wireRows(5) {
		b, valid := AppendRow(nil, row), 0
		for n := 5; n < len(b); n++ {
			short := bytes.Clone(b[:n])
			binary.LittleEndian.PutUint32(short[1:], uint32(n-5))
			back, rest, err := DecodeRow(short)
			if err != nil {
				continue
			}
			valid++
			again, _, err := DecodeRow(AppendRow(nil, back))
			if err != nil || len(rest) > 0 || !reflect.DeepEqual(again, back) {
				t.Fatalf("%s cut to %d bytes is not stable: %v", typeName(row), n, err)
			}
		}
		if fields := reflect.TypeOf(row).Elem().NumField(); valid < fields {
			t.Errorf("%s of %d fields reads in only %d shorter forms", typeName(row), fields, valid)
		}
	}
}

// A row that a newer program wrote ends later. What is stored must not be read in part: members that ignore a field
// would disagree about the rows. A message of a worker or a client may be.
func TestWireLongerRows(t *testing.T) {
	for _, row := range wireRows(5) {
		b := append(AppendRow(nil, row), 1, 2, 3)
		binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-5))
		if _, _, err := DecodeRow(b); !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "start a newer program") {
			t.Errorf("stored %s with 3 unknown bytes: %v", typeName(row), err)
		}
		back, rest, err := DecodeSentRow(b)
		if err != nil || len(rest) > 0 || !reflect.DeepEqual(back, row) {
			t.Errorf("sent %s with 3 unknown bytes: %v", typeName(row), err)
		}
	}
	for _, k := range commands(5) {
		batch := []Envelope{{Command: k}}
		b := append(AppendEnvelopes(nil, batch), 1, 2, 3)
		at := len(AppendEnvelopes(nil, batch)) - len(AppendCommand(nil, k)) - 4
		binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
		if _, err := DecodeEnvelopes(b); !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "start a newer program") {
			t.Errorf("logged %s with 3 unknown bytes: %v", typeName(k), err)
		}
		if back, err := DecodeSentEnvelopes(b); err != nil || !reflect.DeepEqual(back, batch) {
			t.Errorf("sent %s with 3 unknown bytes: %v", typeName(k), err)
		}
	}
}

// later fields that are zero take no bytes, so that an older program reads the row; one that is set keeps those before
// it.
func TestLaterFields(t *testing.T) {
	type grown struct{ old, second, third, fourth uint64 }
	fields := func(known int) func(*coder, *grown) {
		return func(c *coder, g *grown) {
			c.uint(&g.old)
			for i, v := range []*uint64{&g.second, &g.third, &g.fourth}[:known-1] {
				later(c, uint32(i+2), v, (*coder).uint)
			}
		}
	}
	write := func(g grown, known int) ([]byte, uint32) {
		c := coder{needs: FirstApplyVersion}
		c.row(func(c *coder) { c.row(func(c *coder) { fields(known)(c, &g) }) })
		return c.buf, c.needs
	}
	for _, g := range []grown{{}, {old: 1}, {old: 1, second: 2}, {old: 1, third: 3}, {third: 3, fourth: 4}, {second: 2, fourth: 4}} {
		b, needs := write(g, 4)
		want := FirstApplyVersion
		for i, v := range []uint64{g.old, g.second, g.third, g.fourth} {
			if v != 0 {
				want = uint32(i + 1)
			}
		}
		if needs != want {
			t.Errorf("%+v needs version %d, want %d", g, needs, want)
		}
		if old, _ := write(g, int(needs)); !bytes.Equal(old, b) {
			t.Errorf("%+v: a program of version 4 writes %x, one of version %d %x", g, b, needs, old)
		}
		for known := 1; known <= 4; known++ {
			c, back := coder{buf: b, reading: true}, grown{}
			c.row(func(c *coder) { c.row(func(c *coder) { fields(known)(c, &back) }) })
			if err := c.done(); known >= int(needs) && (err != nil || back != g) || known < int(needs) && err == nil {
				t.Errorf("%+v, which needs version %d, read by a program of version %d: %+v, %v", g, needs, known, back, err)
			}
		}
	}
}

func TestWireRefusesWhatItDoesNotKnow(t *testing.T) {
	newer := AppendEnvelopes(nil, envelopesOf(1, Cancel{ID: jobs.ID{1}}))
	for _, version := range []byte{0, WireVersion + 1, 99} {
		newer[0] = version
		if _, err := DecodeEnvelopes(newer); !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "version") {
			t.Errorf("version %d: %v", version, err)
		}
	}
	for _, verb := range []byte{0, byte(len(verbNames)) + byte(ApplyVersion-FirstApplyVersion), 200} {
		b := append([]byte{WireVersion, 1}, make([]byte, 16)...)
		b = append(b, 15, 1, 0, 0, 0, verb)
		if _, err := DecodeEnvelopes(b); !errors.Is(err, jobs.BadInput) {
			t.Errorf("verb %d: %v", verb, err)
		}
	}
	for _, kind := range []byte{0, 126, 127} {
		if _, _, err := DecodeRow([]byte{kind, 0, 0, 0, 0}); !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "kind") {
			t.Errorf("row of kind %d: %v", kind, err)
		}
	}
	for what, b := range map[string][]byte{
		"nothing": nil, "JSON": []byte(`{"id":1}`), "a million envelopes in no bytes": {WireVersion, 0xc0, 0x84, 0x3d},
		"a number that never ends": bytes.Repeat([]byte{0xff}, 100), "text": []byte("hello, scheduler"),
	} {
		if _, err := DecodeEnvelopes(b); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
