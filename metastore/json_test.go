package metastore

import (
	"encoding/json"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Apply reads and writes JSON by package encoding/json: arguments that decide at which limit a run waits and on which
// worker it runs, the arguments of runs that follow another, and audits. All of that is in rows, so nodes whose
// programs were built by two releases of Go must compute the same bytes, or they diverge. If this test fails with a
// new release of Go, its JSON is a change of the rules: see docs/change-a-rule.md.
func TestJSONThatApplyDependsOn(t *testing.T) {
	const html, lone = `<a href="x">&amp;</a>`, `\ud800` // a surrogate without its other half
	values := []struct{ json, gate, route string }{
		{`"plain"`, "plain", "plain"},
		{`"\u0041\u00e9\n"`, "Aé\n", "Aé\n"},
		{`"` + lone + `"`, "\ufffd", "\ufffd"},
		{"\"\xff\"", "\ufffd", "\ufffd"},
		{`"\u2028<&>"`, "\u2028<&>", "\u2028<&>"},
		{`1`, "1", "1"},
		{`1.0`, "1.0", "1.0"},
		{`1e3`, "1e3", "1e3"},
		{`-0`, "-0", "-0"},
		{`12345678901234567890`, "12345678901234567890", "12345678901234567890"},
		{`true`, "true", "true"},
		{`null`, "", ""},
		{`{ "b" : 1, "a" : "\u0041" }`, `{"b":1,"a":"\u0041"}`, `{ "b" : 1, "a" : "\u0041" }`},
		{`[ 1 , "<" ]`, `[1,"<"]`, `[ 1 , "<" ]`},
		{`1, "x": 2`, "2", "2"},   // of two members of one name, the last
		{`1, "X": 2`, "1", "1"},   // whose names must be the same
		{`{}, "": 3`, "{}", "{}"}, // and one without a name is another
	}
	limit := jobs.Limit{Name: "n", By: "args.x"}
	for _, v := range values {
		args := []byte(`{ "x": ` + v.json + ` }`)
		if gate, want := kernel.GateOf(&limit, args), kernel.KeyGate("n", v.gate); gate != want {
			t.Errorf("with %s a run waits at %q, not at %q", args, gate, want)
		}
		d := &kernel.Definition{}
		d.Policy.Route, d.Policy.RouteBy = jobs.RouteHash, "x"
		if p := kernel.PlaceOf(d, args); p == nil || p.Hash != v.route {
			t.Errorf("with %s a run goes to %+v, not by %q", args, p, v.route)
		}
	}

	p := jobs.ParentRun{Run: kernel.DerivedID("parent"), Job: "k", State: jobs.Succeeded, Result: json.RawMessage(`{ "s" : "<\u0041` + lone + `>" }`), Error: html + "\u2028\xff"}
	parent := `{"run":"` + p.Run.String() + `","job":"k","state":"Succeeded","result":{"s":"\u003c\u0041\ud800\u003e"},"error":"\u003ca href=\"x\"\u003e\u0026amp;\u003c/a\u003e\u2028\ufffd"}`
	if got, want := string(kernel.WithParent([]byte(`{"z": [ 1 ], "a": "<", "z": 1.0}`), p)), `{"a":"\u003c","parent":`+parent+`,"z":1.0}`; got != want {
		t.Errorf("a run that follows has the arguments\n%s, not\n%s", got, want)
	}

	line := fields{"z": html, "a": []string{"\u2028", "\xff"}, "m": map[string]any{"2": 1, "10": nil}, "raw": json.RawMessage(`{ "b" : "<", "a" : 1.0 }`),
		"f": 1e21, "g": 0.1, "n": int64(1) << 62}
	const want = `{"a":["\u2028","\ufffd"],"f":1e+21,"g":0.1,"m":{"10":null,"2":1},"n":4611686018427387904,"raw":{"b":"\u003c","a":1.0},"z":"\u003ca href=\"x\"\u003e\u0026amp;\u003c/a\u003e"}`
	if got := string(line.json()); got != want {
		t.Errorf("the audit is\n%s, not\n%s", got, want)
	}
}
