package ui

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/carillon-scheduler/carillon/execspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

// newCommandForm is the form of a job that is a command: a program with its arguments, or a script.
type newCommandForm struct {
	newForm
	Argv      string // the program and its arguments, a line each
	Script    string
	Dir, User string
}

func newCommandFormOf(r *http.Request, v visitor) *newCommandForm {
	f := &newCommandForm{newForm: newForm{visitor: v, App: "exec", Timeout: "1h", Retries: "0"}}
	f.read(r, map[string]*string{"argv": &f.Argv, "script": &f.Script, "dir": &f.Dir, "user": &f.User})
	return f
}

func (f *newCommandForm) answer(status int) answer {
	return answer{page: "newcommand", title: "New command job", data: f, status: status}
}

func (u *UI) newCommandPage(r *http.Request, v visitor) (answer, error) {
	return newCommandFormOf(r, v).answer(0), nil
}

func (u *UI) newCommand(r *http.Request, v visitor) (answer, error) {
	return u.create(r, v, newCommandFormOf(r, v))
}

func (f *newCommandForm) wanted() (ops.Wanted, error) {
	w, err := f.newForm.wanted()
	if err != nil {
		return w, err
	}
	c := execspec.Command{Script: f.Script, Dir: f.Dir, User: f.User}
	if f.Argv != "" {
		c.Argv = strings.Split(f.Argv, "\n")
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return w, err
	}
	w.Set.Exec = (*json.RawMessage)(&raw)
	return w, parseCommand(raw)
}

// parseCommand returns what is wrong with the definition of a command.
func parseCommand(raw []byte) error {
	if _, err := execspec.Parse(raw); err != nil {
		return kernel.Invalid("%v", err)
	}
	return nil
}

// execWork is the command of a job on its page.
type execWork struct {
	Line   string // as one would type it
	Script string
	JSON   string
}

// execWorkOf returns nil for a job without a command.
func execWorkOf(raw json.RawMessage) *execWork {
	if kernel.NoWork(raw) {
		return nil
	}
	w := &execWork{JSON: pretty(raw)}
	c, err := execspec.Parse(raw)
	if err != nil { // it was checked when it was saved, perhaps by another version
		return w
	}
	words := make([]string, len(c.Argv))
	for i, word := range c.Argv {
		words[i] = shellWord(word)
	}
	w.Line, w.Script = strings.Join(words, " "), c.Script
	return w
}

// plainWord is a word that a shell takes as it is. A first word with = would be an assignment.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:,@%+-]+$`)

// shellWord returns a word as a shell needs it.
func shellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return quoted(word)
}
