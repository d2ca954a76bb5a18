package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
)

// field is an editable setting of a job. The table is derived from api.Policy, so that new settings get a flag.
type field struct {
	name string // in JSON
	flag string // as a flag: retryDelay is --retry-delay
	help string
	one  []string // the allowed values of an enum
	kind reflect.Type
}

var fields = func() []field {
	var list []field
	policy := reflect.TypeFor[api.Policy]()
	for i := range policy.NumField() {
		f := policy.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		one := field{name: name, flag: kebab(name), help: f.Tag.Get("doc"), kind: f.Type.Elem()}
		if values := f.Tag.Get("enum"); values != "" {
			one.one = strings.Split(values, ",")
			one.help = strings.TrimSpace(one.help + " One of " + strings.Join(one.one, ", ") + ".")
		}
		switch name {
		case "limits":
			one.help += " Such as db=3,mail=2:10/s,tenant=2@args.customer_id."
		case "retryRules":
			one.help += " Such as '502+503:3:10s:2:1m; timeout:1': codes, attempts, delay, factor, longest delay."
		case "tags":
			one.help = "Tags for the search: a,b."
		case "needs":
			one.help += " Such as gpu,region=eu."
		}
		list = append(list, one)
	}
	return list
}()

func kebab(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// fieldOf returns a field by its name or its flag.
func fieldOf(name string) (field, error) {
	known := map[string]string{}
	for _, f := range fields {
		if f.name == name || f.flag == name {
			return f, nil
		}
		known[f.name] = ""
	}
	if meant, far := plain.Closest(name, known); far <= plain.Slip {
		return field{}, kernel.Invalid("there is no field %.40q; did you mean %s?", name, meant)
	}
	return field{}, kernel.Invalid("there is no field %.40q; the fields are %s", name, strings.Join(kernel.Fields(), ", "))
}

// read converts a flag's text to JSON.
func (f field) read(text string, now time.Time) (json.RawMessage, error) {
	wrong := func(must string) error { return kernel.Invalid("%s %.40q: it must be %s", f.name, text, must) }
	var v any
	switch f.kind {
	case reflect.TypeFor[string]():
		v = text
	case reflect.TypeFor[int]():
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, wrong("a whole number")
		}
		v = n
	case reflect.TypeFor[bool]():
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, wrong("true or false")
		}
		v = b
	case reflect.TypeFor[api.Duration]():
		d, err := readSpan(f.name, text)
		if err != nil {
			return nil, err
		}
		v = api.Duration(d)
	case reflect.TypeFor[api.Moment]():
		t, wall, ok := momentOf(strings.Join(strings.Fields(text), " "), now) // may have passed
		if !ok {
			return nil, wrong("a time: " + momentHelp + "; without an offset, in the job's zone")
		}
		if v = t; wall {
			v = wallText(text, now)
		}
	case reflect.TypeFor[[]string]():
		v = list(text)
	case reflect.TypeFor[[]api.Limit]():
		limits, err := kernel.ParseLimits(text)
		if err != nil {
			return nil, err
		}
		v = api.LimitsOf(limits)
	case reflect.TypeFor[[]api.RetryRule]():
		rules, err := kernel.ParseRules(text)
		if err != nil {
			return nil, err
		}
		v = api.RulesOf(rules)
	case reflect.TypeFor[api.Rate]():
		r, err := kernel.ParseRate(text)
		if err != nil {
			return nil, err
		}
		v = api.Rate(r)
	case reflect.TypeFor[float64]():
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, wrong("a number such as 1.5")
		}
		v = n
	case reflect.TypeFor[api.Object]():
		return readObject(f.name, []byte(text))
	default:
		return nil, fmt.Errorf("%s has a type that this version cannot read", f.name)
	}
	return json.Marshal(v)
}

// list splits a comma-separated list.
func list(text string) []string {
	items := []string{}
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			items = append(items, one)
		}
	}
	return items
}

// readObject checks that text is one JSON object; its errors have the position.
func readObject(what string, text []byte) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	var v json.RawMessage
	err := d.Decode(&v)
	if err == nil {
		rest := d.InputOffset()
		if _, more := d.Token(); more != io.EOF {
			return nil, kernel.Invalid("%s: something follows the JSON object, %s", what, place(text, rest+1))
		}
	}
	wrong, isSyntax := errors.AsType[*json.SyntaxError](err)
	switch {
	case err == io.EOF:
		return nil, kernel.Invalid(`%s is empty: want a JSON object such as {"customer":"c7"}`, what)
	case err == io.ErrUnexpectedEOF:
		return nil, kernel.Invalid("%s is not JSON: it ends too early, %s", what, place(text, int64(len(text))))
	case isSyntax:
		return nil, kernel.Invalid("%s is not JSON: %v, %s", what, wrong, place(text, wrong.Offset))
	case err != nil:
		return nil, kernel.Invalid("%s: %v", what, err)
	case v[0] != '{':
		return nil, kernel.Invalid(`%s is %.40[2]s: want a JSON object such as {"customer":"c7"}`, what, clean(string(v)))
	}
	return v, nil
}

// place describes the position of a byte (from 1) in a text and shows its surroundings.
func place(text []byte, offset int64) string {
	at := max(0, min(int(offset), len(text))-1)
	line := bytes.Count(text[:at], []byte("\n"))
	begin := bytes.LastIndexByte(text[:at], '\n') + 1
	end := len(text)
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		end = at + n
	}
	from, to := max(begin, at-30), min(end, at+30)
	shown := clean(string(text[from:to]))
	column := len([]rune(string(text[from:min(at, to)])))
	return fmt.Sprintf("at line %d, column %d:\n  %s\n  %s^", line+1, at-begin+1, shown, strings.Repeat(" ", column))
}
