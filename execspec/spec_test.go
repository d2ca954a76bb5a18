package execspec_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/execspec"
)

func TestParse(t *testing.T) {
	c, err := execspec.Parse([]byte(`{"argv":["backup","--all"],"env":{"A":"b=c"},"dir":"/srv","user":"backup","stdin":"none","killAfter":"30s","noRetry":[64],"snooze":[75],"limits":{"memory":1048576,"processes":9,"cpus":0.5}}`))
	if err != nil || c.Argv[1] != "--all" || c.Grace() != 30*time.Second || c.Limits != (execspec.Limits{Memory: 1 << 20, Processes: 9, CPUs: 0.5}) {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err := execspec.Parse([]byte(`{"script":"a | b"}`)); err != nil || c.Grace() != 10*time.Second || c.Limits != (execspec.Limits{}) {
		t.Fatalf("%+v, %v", c, err)
	}
}

func TestRefused(t *testing.T) {
	for raw, want := range map[string][2]string{
		`{}`:                              {"argv", "is missing"},
		`{"argv":[]}`:                     {"argv", "is missing"},
		`{"argv":["a"],"script":"b"}`:     {"script", "one of them"},
		`{"argv":[""]}`:                   {"argv[0]", "is empty"},
		`{"argv":["a","b\u0000c"]}`:       {"argv[1]", "NUL"},
		`{"script":"a\u0000"}`:            {"script", "NUL"},
		`{"argv":"backup"}`:               {"", "want an object such as"},
		`{"argv":["a"],"shell":"sh"}`:     {"", `unknown field "shell"`},
		`{"argv":["a"]} {}`:               {"", "one JSON object"},
		`["a"]`:                           {"", "want an object such as"},
		`{"argv":["a"],"env":{"A=B":""}}`: {"env", "invalid name"},
		`{"argv":["a"],"env":{"CARILLON_RUN":"x"}}`: {"env.CARILLON_RUN", "reserved"},
		`{"argv":["a"],"env":{"LD_PRELOAD":"x"}}`:   {"env.LD_PRELOAD", "reserved"},
		`{"argv":["a"],"env":{"A":"\u0000"}}`:       {"env.A", "NUL"},
		`{"argv":["a"],"dir":"srv"}`:                {"dir", "absolute path"},
		`{"argv":["a"],"stdin":"file"}`:             {"stdin", `"args" or "none"`},
		`{"argv":["a"],"killAfter":"soon"}`:         {"killAfter", "30s"},
		`{"argv":["a"],"killAfter":"1h"}`:           {"killAfter", "at most"},
		`{"argv":["a"],"noRetry":[0]}`:              {"noRetry", "1 to 255"},
		`{"argv":["a"],"snooze":[256]}`:             {"snooze", "1 to 255"},
		`{"argv":["a"],"limits":{"cpu":-1}}`:        {"limits.cpu", "negative"},
		`{"argv":["a"],"limits":{"processes":-1}}`:  {"limits.processes", "negative"},
		`{"argv":["a"],"limits":{"cpus":-1}}`:       {"limits.cpus", "0.01 to"},
		`{"argv":["a"],"limits":{"cpus":0.001}}`:    {"limits.cpus", "0.01 to"},
	} {
		place, err := execspec.Check([]byte(raw))
		if err == nil || place != want[0] || !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%s: %q, %v; want %q, %q", raw, place, err, want[0], want[1])
		}
	}
	if place, err := execspec.Check([]byte(`{"argv":["` + strings.Repeat(`a","`, 1000) + `"]}`)); place != "argv" || err == nil {
		t.Errorf("too many arguments: %q, %v", place, err)
	}
}
