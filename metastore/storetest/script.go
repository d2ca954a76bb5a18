package storetest

import (
	"embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A story is a file of testdata: a title after "#", and then paragraphs of a command, a line of dashes, and the
// effect of the command:
//
//	create r1 charge delay=30m
//	----
//	r1 Scheduled, due +30m
//
// The first word is the verb or what is to be shown, then come names, then name=value. Times count from the beginning
// of the story: +30m. Runs have names instead of ids; a fired one is called by its job and due time: report@+1m, one
// that follows another by that one and its job: r1>mail, and r1>mail.2 if there is one between. See command.go for
// the commands, show.go for what can be shown.

//go:embed testdata/*.txt
var testdata embed.FS

// script is a story in its file.
type script struct {
	name  string
	title string // lines with "#", as they are
	steps []step
}

type step struct {
	note    string // comment lines before it, as they are
	line    string
	effects string
}

func stories(t testing.TB) []script {
	t.Helper()
	files, err := testdata.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var all []script
	for _, f := range files {
		b, err := testdata.ReadFile(path.Join("testdata", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parse(strings.TrimSuffix(f.Name(), ".txt"), string(b)))
	}
	return all
}

func parse(name, text string) script {
	s := script{name: name}
	for para := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, effects, _ := strings.Cut(para+"\n", "----\n")
		var st step
		for line := range strings.Lines(head) {
			if strings.HasPrefix(line, "#") {
				st.note += line
			} else if line = strings.TrimSpace(line); line != "" {
				st.line = line
			}
		}
		st.effects = strings.TrimRight(effects, "\n")
		if st.line == "" {
			s.title += st.note + "\n"
			continue
		}
		s.steps = append(s.steps, st)
	}
	return s
}

// String is the script as a file.
func (s script) String() string {
	var b strings.Builder
	b.WriteString(s.title)
	for i, st := range s.steps {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s%s\n----\n%s\n", st.note, st.line, st.effects)
	}
	return b.String()
}

// way is a way to play a story. The effects must be the same in all of them.
type way struct {
	name   string
	twice  bool // every command is sent a second time
	beside bool // every command is in a batch between refused ones
	crash  int  // the store crashes after so many commands
	faults bool // every command goes wrong once before it is done
}

var ways = []way{{name: "plain"}, {name: "twice", twice: true}, {name: "among refused ones", beside: true},
	{name: "crash after each", crash: 1}, {name: "crash after three", crash: 3}, {name: "crash after each, twice", crash: 1, twice: true},
	{name: "with faults", faults: true}, {name: "with faults, among refused ones", faults: true, beside: true}}

// slowWays are those of a store on which a commit or a crash takes long: all that can happen, at once.
func slowWays() []way {
	return []way{{name: "plain"}, {name: "twice, among refused ones, with faults", twice: true, beside: true, faults: true},
		{name: "twice, among refused ones, with crashes", twice: true, beside: true, crash: tests.Size(12, 3, 3)}}
}

func tellAll(t *testing.T, s script, open func(t *testing.T) Harness) {
	first := open(t)
	if first.Clock == nil {
		t.Skip("the store's clock cannot be set")
	}
	if first.retainer() == nil && slices.ContainsFunc(s.steps, func(st step) bool { return st.line == "retain" }) {
		t.Skip("the store cannot purge")
	}
	all := ways
	if first.Slow {
		all = slowWays()
	}
	for i, w := range all {
		t.Run(w.name, func(t *testing.T) {
			if w.crash > 0 && first.Crash == nil {
				t.Skip("nothing survives a crash")
			}
			h := first
			if i > 0 {
				h = open(t)
			}
			played := play(t, h, s, w)
			for i := range s.steps {
				if got, want := played.steps[i].effects, s.steps[i].effects; got != want {
					t.Fatalf("%s\nis\n%s\nwant\n%s", s.steps[i].line, got, want)
				}
			}
		})
	}
}

// Retell plays each story on a store of its own and returns the files as they should be, by name.
func Retell(t *testing.T, open func(t *testing.T) Harness) map[string]string {
	files := map[string]string{}
	for _, s := range stories(t) {
		files[s.name+".txt"] = play(t, open(t), s, way{}).String()
	}
	return files
}

// telling is a story under way.
type telling struct {
	t     *testing.T
	h     Harness
	way   way
	count int // of commands
	names map[jobs.ID]string
	term  uint64
}

func play(t *testing.T, h Harness, s script, w way) script {
	t.Helper()
	tl := &telling{t: t, h: h, way: w, names: map[jobs.ID]string{}}
	played := s
	played.steps = slices.Clone(s.steps)
	for i := range played.steps {
		played.steps[i].effects = tl.step(played.steps[i].line)
		if t.Failed() {
			t.Fatalf("at: %s", played.steps[i].line)
		}
	}
	return played
}

func (tl *telling) step(line string) string {
	w := split(line)
	if w.verb == "advance" {
		d, err := time.ParseDuration(w.name(0))
		if err != nil {
			tl.t.Fatal(err)
		}
		tl.h.Clock.Advance(d)
		return "it is " + since(tl.h.Clock.Now())
	}
	if w.verb == "retain" {
		now := tl.h.Clock.Now()
		done, err := tl.h.retainer().Retain(tl.t.Context(), metastore.Retention{Now: now, Of: metastore.KeptBy(tl.t.Context(), tl.h.Store, now)})
		if err != nil {
			tl.t.Fatal(err)
		}
		return fmt.Sprint(done.Dropped, " forgotten")
	}
	if show := shows(w.verb); show != nil {
		return show(tl, w)
	}
	e := tl.envelope(w)
	result := tl.apply(e)
	if result.Err == nil {
		tl.learn(result.Effect, e.Command)
	}
	if tl.way.crash > 0 && tl.count%tl.way.crash == 0 {
		tl.h = tl.h.Crash(tl.t)
	}
	return tl.result(result)
}

// withoutAnswers are rows as they would be without the remembered answers to a command, and to nonsense beside it.
func withoutAnswers(all rows, c kernel.Command) rows {
	names := []string{kernel.AnswerName(nonsenseID(2))}
	if k, ok := c.(kernel.Create); ok {
		names = append(names, kernel.AnswerName(k.ID))
	}
	all = maps.Clone(all)
	maps.DeleteFunc(all, func(ref kernel.Ref, _ kernel.Row) bool {
		return ref.Kind == kernel.RowUnique && slices.Contains(names, ref.Name)
	})
	return all
}

// learn remembers the names in an effect.
func (tl *telling) learn(e kernel.Effect, c kernel.Command) {
	for _, d := range e.Definitions {
		tl.names[d.UID] = string(d.Key)
		if d.Tenant != jobs.DefaultTenant {
			tl.names[d.UID] = string(d.Tenant) + "/" + string(d.Key)
		}
	}
	if k, ok := c.(kernel.Fire); ok {
		for _, run := range e.Runs {
			if slices.ContainsFunc(k.Due, run.Due.Equal) {
				tl.names[run.ID] = string(run.Key) + "@" + since(run.Due)
			}
		}
	}
	for _, run := range e.Runs {
		if _, known := tl.names[run.ID]; !known && run.Occasion != "" && run.Origin == kernel.FromParent {
			tl.names[run.ID] = strings.ReplaceAll(tl.named(run.Occasion), ":", "") + ">" + string(run.Key)
		}
		if parent, ok := tl.names[run.Parent]; ok && run.ID == kernel.ChildID(&kernel.Run{Tenant: run.Tenant, ID: run.Parent}, run.Key) {
			first, _, _ := strings.Cut(parent, ">")
			tl.names[run.ID] = first + ">" + string(run.Key)
			if run.Depth > 1 {
				tl.names[run.ID] += fmt.Sprint(".", run.Depth)
			}
		}
	}
	if k, ok := c.(kernel.Lead); ok {
		tl.term = k.Term
	}
}

// apply sends a command in the way of the story, and checks its other effects.
func (tl *telling) apply(e kernel.Envelope) metastore.Result {
	tl.t.Helper()
	ctx := tl.t.Context()
	tl.count++
	before := rowsOf(tl.h)
	apply := func(batch []kernel.Envelope) []metastore.Result {
		if tl.way.faults {
			return tl.insist(batch, before)
		}
		return tl.h.Store.Apply(ctx, batch)
	}
	var result metastore.Result
	if tl.way.beside {
		batch := []kernel.Envelope{nonsense(e, 1), e, nonsense(e, 2), nonsense(e, 3)}
		results := apply(batch)
		for _, i := range []int{0, 2, 3} {
			if results[i].Err == nil {
				tl.t.Errorf("%s was not refused: %+v", batch[i].Command.Verb(), results[i].Effect)
			}
		}
		result = results[1]
	} else {
		result = apply([]kernel.Envelope{e})[0]
	}
	after := rowsOf(tl.h)
	if result.Err != nil {
		same(tl.t, "a refused command left a trace", withoutAnswers(before, e.Command), withoutAnswers(after, e.Command))
	}
	invariants(tl.t, before, after)
	if tl.way.twice {
		again := tl.h.Store.Apply(ctx, []kernel.Envelope{e})[0]
		sameAnswer(tl.t, e.Command, result, again)
		same(tl.t, "a command that was sent twice did more than once", after, rowsOf(tl.h))
	}
	return result
}

func nonsenseID(kind int) jobs.ID { return kernel.DerivedID("nonsense", fmt.Sprint(kind)) }

// nonsense is a command that every store refuses, each in its way.
func nonsense(e kernel.Envelope, kind int) kernel.Envelope {
	id := nonsenseID(kind)
	e.ID = id
	switch kind {
	case 1:
		e.Command = kernel.Start{ID: id, Worker: "absent", Attempt: 1} // no such run
	case 2:
		e.Command = kernel.Create{ID: id, Key: "no.such.job"}
	case 3:
		e.Command = kernel.Create{ID: id, Key: "../x"} // wrong by itself
	}
	return e
}

// sameAnswer checks that two answers are equal.
func sameAnswer(t *testing.T, c kernel.Command, first, second metastore.Result) {
	t.Helper()
	if (first.Err == nil) != (second.Err == nil) || first.Err != nil && jobs.CodeOf(first.Err) != jobs.CodeOf(second.Err) {
		t.Errorf("%s, sent twice, is answered with %v, then with %v", c.Verb(), first.Err, second.Err)
		return
	}
	a, b := first.Run(), second.Run()
	// Of a run that has long been over, only the name is known.
	byName := second.Existing && b != nil && b.State == kernel.New
	if a != nil && b != nil && !byName && (a.ID != b.ID || a.State != b.State || a.Attempt != b.Attempt) {
		t.Errorf("%s, sent twice, is answered with %s %s, then with %s %s", c.Verb(), a.ID, a.State, b.ID, b.State)
	}
	if d, e := first.Definition(), second.Definition(); d != nil && e != nil && (d.UID != e.UID || d.Revision != e.Revision) {
		t.Errorf("%s, sent twice, is answered with revision %d, then with %d", c.Verb(), d.Revision, e.Revision)
	}
}
