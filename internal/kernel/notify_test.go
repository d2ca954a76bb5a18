package kernel

import (
	"encoding/json"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A system job sends what its arguments say, with the secrets of the server: no job of others runs its code, by
// any command of any sender. What only a declaration of a program was checked for is checked for any registration.
func TestJobsThatNoDoorTakes(t *testing.T) {
	register := func(change func(*Declaration)) Command {
		r := Register{App: "http", Worker: "w1", Job: Declaration{Key: "report", Kind: Triggered}}
		change(&r.Job)
		return r
	}
	system := string(NotifyKey("http"))
	for name, c := range map[string]struct {
		command Command
		code    jobs.Code
	}{
		"a registration":                         {register(func(*Declaration) {}), ""},
		"one with a handler":                     {register(func(d *Declaration) { d.Code.Handler = new("mail") }), ""},
		"one with the handler of a system job":   {register(func(d *Declaration) { d.Code.Handler = &system }), jobs.Forbidden},
		"an edit to it":                          {Edit{Key: "report", Set: Settings{Handler: &system}}, jobs.Forbidden},
		"defaults with it":                       {Configure{Defaults: &Settings{Handler: &system}}, jobs.BadInput},
		"one with the key of a system job":       {register(func(d *Declaration) { d.Key = "carillon.x" }), jobs.BadInput},
		"one with that of another app":           {register(func(d *Declaration) { d.Key = NotifyKey("billing") }), jobs.BadInput},
		"one that a system job follows":          {register(func(d *Declaration) { d.Code.OnSuccess = &[]string{system} }), jobs.BadInput},
		"a run of a system job":                  {Create{ID: jobs.ID{1}, Key: NotifyKey("http")}, jobs.Forbidden},
		"a batch that it ends":                   {OpenBatch{ID: jobs.ID{1}, Then: NotifyKey("http")}, jobs.Forbidden},
		"a triggered job with a schedule":        {register(func(d *Declaration) { d.Code.Schedule = new("@daily") }), jobs.BadInput},
		"a job of a version that is negative":    {register(func(d *Declaration) { d.Version = -1 }), jobs.BadInput},
		"a job with requests":                    {register(func(d *Declaration) { d.Code.HTTP = new(json.RawMessage(`{"url":"http://a"}`)) }), jobs.BadInput},
		"a job without a kind":                   {register(func(d *Declaration) { d.Kind = 0 }), jobs.BadInput},
		"a check-in of a system job":             {CheckIn{ID: jobs.ID{1}, Key: NotifyKey("http")}, jobs.Forbidden},
		"an edit of a job to a schedule":         {Edit{Key: "report", Set: Settings{Schedule: new("@daily")}}, ""},
		"an edit of a job to an ordinary helper": {Edit{Key: "report", Set: Settings{Handler: new("mail")}}, ""},
	} {
		err := c.command.Check()
		if code := codeOf(err); code != c.code {
			t.Errorf("%s: %v, code %q, want %q", name, err, code, c.code)
		}
	}
}

func codeOf(err error) jobs.Code {
	if err == nil {
		return ""
	}
	return jobs.CodeOf(err)
}
