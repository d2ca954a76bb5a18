package cli_test

import (
	"context"
	"encoding/json"
	"html"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// numbers are JSON whose digits a float64 loses.
var numbers = []string{"9007199254740993", "-9007199254740993", "123456789012345678901234567890", "9007199254740993.0", "0.10", "-0", "1E5", "1e-7", "1.7976931348623157e308"}

type figures struct {
	N []json.RawMessage `json:"n"`
	I int64             `json:"i"`
	F float64           `json:"f"`
}

// copied is a job whose result is its arguments, as they are after a checkpoint.
func copied() jobs.Job {
	return jobs.NewTriggered(jobs.TriggeredFunc[json.RawMessage](func(ctx context.Context, args json.RawMessage) error {
		if err := jobs.Save(ctx, args); err != nil {
			return err
		}
		var saved json.RawMessage
		if _, err := jobs.Load(ctx, &saved); err != nil {
			return err
		}
		return jobs.Result(ctx, saved)
	}), jobs.Options{Key: "shop.copy"})
}

// form is a job whose arguments have a form of fields.
func form() jobs.Job {
	return jobs.NewTriggered(jobs.TriggeredFunc[figures](func(context.Context, figures) error { return nil }), jobs.Options{Key: "shop.form"})
}

var (
	item  = regexp.MustCompile(`\n\s*- `)
	blank = regexp.MustCompile(`\s`)
)

// tight is the text of a list in JSON, YAML or a page, as one line of JSON.
func tight(text string) string {
	return blank.ReplaceAllString(item.ReplaceAllString(html.UnescapeString(text), ","), "")
}

// Each way in and each way out keeps the numbers of arguments and results digit by digit.
func TestNumbersKeepTheirDigits(t *testing.T) {
	h := openWith(t, []jobs.Job{copied(), form()})
	list := strings.Join(numbers, ",")
	args := `{"n":[` + list + `]}`
	file := filepath.Join(t.TempDir(), "args.json")
	if err := os.WriteFile(file, []byte(args), 0o600); err != nil {
		t.Fatal(err)
	}
	carillon := func(in string, words ...string) string {
		t.Helper()
		out, errs, code := call{env: h.env(), in: in}.run(words...)
		if code != 0 {
			t.Errorf("%s: %d %s%s", words, code, out, errs)
		}
		return out
	}
	send := func(want int, path, kind, body string) string {
		t.Helper()
		status, answer := h.send(t, "POST", path, kind, body)
		if status != want {
			t.Errorf("%s: %d %s", path, status, answer)
		}
		return answer
	}
	page := func(path string) string {
		t.Helper()
		_, text := h.send(t, "GET", path, "", "")
		return text
	}
	has := func(what, text string) {
		t.Helper()
		if !strings.Contains(tight(text), list) {
			t.Errorf("%s lacks %s:\n%.2000s", what, list, text)
		}
	}
	of := func(job string) string { return "handler: shop.copy, kind: triggered, app: shop, args: " + job }
	yaml := "{n: [" + strings.Join(numbers, ", ") + "]}"

	bare := func(key string) { carillon("jobs: [{key: "+key+", "+of("{}")+"}]", "apply", "-f", "-") }
	definitions := map[string]func(key string){
		"yaml": func(key string) { carillon("jobs: [{key: "+key+", "+of(yaml)+"}]", "apply", "-f", "-") },
		"block": func(key string) {
			carillon("jobs:\n- key: "+key+"\n  kind: triggered\n  app: shop\n  handler: shop.copy\n  args:\n    n:\n    - "+strings.Join(numbers, "\n    - ")+"\n", "apply", "-f", "-")
		},
		"json": func(key string) {
			carillon(`{"jobs":[{"key":"`+key+`","kind":"triggered","app":"shop","handler":"shop.copy","args":`+args+`}]}`, "apply", "-f", "-")
		},
		"create": func(key string) {
			carillon("", "jobs", "create", key, "--app", "shop", "--set", "handler=shop.copy", "--set", "args="+args)
		},
		"edit": func(key string) {
			bare(key)
			carillon("", "jobs", "edit", key, "--set", "args="+args)
		},
		"page": func(key string) {
			bare(key)
			send(303, "/jobs/"+key+"/edit", asForm, url.Values{"args": {args}, "was.args": {"{}"}, "revision": {"1"}, "do": {"save"}}.Encode())
		},
		"export": func(key string) {
			carillon(strings.ReplaceAll(carillon("", "export", "doors.yaml"), "doors.yaml", key), "apply", "-f", "-")
		},
	}
	for _, name := range append(slices.DeleteFunc(slices.Sorted(maps.Keys(definitions)), func(n string) bool { return n == "export" }), "export") {
		key := "doors." + name
		definitions[name](key)
		for _, words := range []string{"jobs show KEY -o json", "jobs show KEY -o yaml", "jobs show KEY", "export KEY"} {
			words = strings.ReplaceAll(words, "KEY", key)
			has(words, carillon("", strings.Fields(words)...))
		}
		has("the form of "+key, page("/jobs/"+key+"/edit"))
		has("the arguments of "+key, page("/jobs/"+key+"/run"))
	}
	diff, _, _ := call{env: h.env(), in: "jobs: [{key: doors.bare, " + of(yaml) + "}]"}.run("diff", "-f", "-")
	has("diff", diff)
	has("jobs diff", carillon("", "jobs", "diff", "doors.edit", "--from", "1", "--to", "2"))

	runs := map[string]func() string{
		"its definition": func() string { return carillon("", "jobs", "trigger", "doors.yaml", "-o", "name") },
		"--args":         func() string { return carillon("", "jobs", "trigger", "shop.copy", "--args", args, "-o", "name") },
		"--args -":       func() string { return carillon(args, "jobs", "trigger", "shop.copy", "--args", "-", "-o", "name") },
		"--args-file":    func() string { return carillon("", "jobs", "trigger", "shop.copy", "--args-file", file, "-o", "name") },
		"api": func() string {
			return uuid.FindString(send(201, "/api/v1/jobs/shop.copy/trigger", asJSON, `{"args":`+args+`}`))
		},
		"bulk": func() string {
			return uuid.FindString(send(201, "/api/v1/runs", asJSON, `{"items":[{"job":"shop.copy","args":`+args+`}]}`))
		},
		"page": func() string {
			status, body := h.send(t, "POST", "/jobs/shop.copy/trigger", asForm, url.Values{"mode": {"json"}, "args": {args}}.Encode())
			if status != 303 {
				t.Errorf("%d %s", status, body)
			}
			return strings.Fields(carillon("", "runs", "list", "-o", "name"))[0]
		},
		"client": func() string {
			list, err := h.Client().Enqueue(t.Context(), jobs.Request{Key: "shop.copy", Args: []byte(args)})
			if err != nil {
				t.Fatal(err)
			}
			return list[0].ID.String()
		},
	}
	for name, start := range runs {
		id := strings.TrimSpace(start())
		until(t, name, func() bool { return strings.Contains(carillon("", "runs", "show", id, "-o", "json"), `"Succeeded"`) })
		for _, words := range []string{"runs show ID -o json", "runs show ID -o yaml", "runs show ID"} {
			words = strings.ReplaceAll(words, "ID", id)
			out := carillon("", strings.Fields(words)...)
			has(name+": "+words, out)
			_, result, _ := strings.Cut(out, "result")
			has(name+": the result of "+words, result)
		}
		has(name+": its page", page("/runs/"+id))
	}

	// A form of fields.
	fields := url.Values{"mode": {"form"}, "a.n": {"[" + list + "]"}, "a.i": {"9007199254740993"}, "a.f": {"0.10"}}
	send(303, "/jobs/shop.form/trigger", asForm, fields.Encode())
	run := carillon("", "runs", "show", "shop.form", "-o", "json")
	has("a form", run)
	for _, want := range []string{`"i": 9007199254740993`, `"f": 0.10`} {
		if !strings.Contains(run, want) {
			t.Errorf("a form makes %s, want %s", run, want)
		}
	}

	for _, wrong := range []string{"+5", "007", "1.5", "1e3", "5-5"} {
		fields.Set("a.i", wrong)
		if answer := send(422, "/jobs/shop.form/trigger", asForm, fields.Encode()); !strings.Contains(answer, "Want a whole number.") {
			t.Errorf("%s is taken for a whole number", wrong)
		}
	}

	// What no float64 holds is refused at each door: many languages could not read it.
	for what, words := range map[string][]string{
		`jobs: [{key: doors.bare, ` + of("{n: 1e400}") + `}]`: {"apply", "-f", "-"}, `{"n":1e400}`: {"jobs", "trigger", "shop.copy", "--args", "-"}} {
		if out, errs, code := (call{env: h.env(), in: what}).run(words...); code != 2 || !strings.Contains(errs, "1e400") {
			t.Errorf("%s: %d %s%s", what, code, out, errs)
		}
	}
}
