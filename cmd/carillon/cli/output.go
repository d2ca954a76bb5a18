package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/carillon-scheduler/carillon/internal/fastjson"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// page is text output: lines and tables, optionally in colours.
type page struct {
	strings.Builder
	colour bool
	now    time.Time
}

// view is a response in all output formats.
type view struct {
	raw   []byte      // JSON, as the API has it
	names []string    // for -o name
	text  func(*page) // for terminals; nil = nothing
}

func (a *asker) newPage() *page {
	return &page{colour: a.Terminal(a.out) && a.Getenv(envNoColor) == "" && a.Getenv("TERM") != "dumb", now: a.Now()}
}

// show prints a view in the format of -o.
func (a *asker) show(v view) error {
	text, err := a.form(v)
	if err != nil || a.quiet {
		return err
	}
	_, err = io.WriteString(a.out, text)
	return err
}

// form formats a view as -o wants it.
func (a *asker) form(v view) (string, error) {
	if a.format == "yaml" && !fastjson.Bulky(v.raw) {
		return toYAML(v.raw)
	}
	switch a.format {
	case "json", "yaml": // JSON is YAML
		text, err := fastjson.Indented(v.raw)
		if err != nil {
			return "", fmt.Errorf("the server's response is not JSON: %w", err)
		}
		return strings.TrimRight(unescaped(text), "\n") + "\n", nil
	case "name":
		if len(v.names) == 0 {
			return "", nil
		}
		return strings.Join(v.names, "\n") + "\n", nil
	}
	p := a.newPage()
	if v.text != nil {
		v.text(p)
	}
	return p.shown(), nil
}

// shown returns the page. What a server sent may not steer the terminal: only colours do, if there are any.
func (p *page) shown() string {
	text, kept := p.String(), 0
	if !p.colour || plain.Seen([]byte(text)) {
		return plain.Visible(text)
	}
	var b strings.Builder
	for _, at := range paints.FindAllStringIndex(text, -1) {
		b.WriteString(plain.Visible(text[kept:at[0]]) + text[at[0]:at[1]])
		kept = at[1]
	}
	return b.String() + plain.Visible(text[kept:])
}

var paints = regexp.MustCompile("\x1b\\[[0-9;]*m")

// unescaped returns JSON with &, < and > as they are: encoding/json escapes them for HTML, and a terminal is none.
func unescaped(raw []byte) string {
	return htmlEscape.ReplaceAllStringFunc(string(raw), func(s string) string {
		switch strings.ToLower(s) {
		case `\u0026`:
			return "&"
		case `\u003c`:
			return "<"
		case `\u003e`:
			return ">"
		}
		return s // another escape, such as a backslash, which must not begin the next one
	})
}

var htmlEscape = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// remark prints a hint to the error output.
func (a *asker) remark(format string, args ...any) {
	if !a.quiet {
		_, _ = io.WriteString(a.errs, plain.Visible(fmt.Sprintf(format+"\n", args...)))
	}
}

// human reports whether the output is text, not one document for a program.
func (a *asker) human() bool { return a.format == "" && !a.quiet }

// toYAML converts JSON to YAML and keeps its order.
func toYAML(raw []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	node, err := yamlNode(d)
	if err != nil {
		return "", fmt.Errorf("the server's response is not JSON: %w", err)
	}
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(node); err != nil {
		return "", err
	}
	return b.String(), e.Close()
}

// yamlNode reads the next value. It uses a JSON decoder, since YAML has other escapes.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if t == '{' {
			n.Kind = yaml.MappingNode
		}
		for d.More() {
			child, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
			if n.Kind == yaml.MappingNode && len(n.Content)%2 == 1 {
				continue // the key; its value follows
			}
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
		_, err := d.Token() // the end of it
		return n, err
	case string:
		n := new(yaml.Node)
		n.SetString(t)
		return n, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// Colours of states and warnings.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	bold   = "1"
	faint  = "2"
)

var stateColours = map[string]string{
	jobs.Succeeded.String(): green, jobs.Processing.String(): cyan, jobs.Failed.String(): yellow, jobs.Terminated.String(): red,
	jobs.Cancelled.String(): faint, jobs.Skipped.String(): faint,
	"paused": yellow, "disabled": faint, "trouble": red, "leaving": yellow, "debug": yellow, "suspended": yellow,
	"stopped": red, "no_worker": red, "failing": red, "full": yellow, "finished": faint,
	"ERROR": red, "WARN": yellow, "DEBUG": faint,
}

// paint colours text, if the page has colours.
func (p *page) paint(colour, text string) string {
	if !p.colour || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// state colours the name of a state.
func (p *page) state(name string) string { return p.paint(stateColours[name], name) }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// table prints rows under their heads, aligned. The last cell of a row is as long as it is.
func (p *page) table(head []string, rows [][]string) {
	painted := make([]string, len(head))
	for i, h := range head {
		painted[i] = p.paint(bold, h)
	}
	p.columns(append([][]string{painted}, rows...), "")
}

// facts prints names and values, one a line; those without a value are left out.
func (p *page) facts(pairs ...string) {
	var rows [][]string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			rows = append(rows, []string{p.paint(faint, pairs[i]), pairs[i+1]})
		}
	}
	p.columns(rows, "")
}

func (p *page) columns(rows [][]string, indent string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if i < len(row)-1 {
				widths[i] = max(widths[i], width(cell))
			}
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-width(cell)+2))
			}
		}
		p.WriteString(indent + strings.TrimRight(b.String(), " ") + "\n")
	}
}

// width is the width of a cell without its colours.
func width(cell string) int {
	n, escaped := 0, false
	for _, r := range cell {
		switch {
		case r == '\x1b':
			escaped = true
		case escaped:
			escaped = r != 'm'
		default:
			n++
		}
	}
	return n
}

// clean shows a text that a user or a job wrote on one line.
func clean(text string) string { return plain.Visible(oneLine.Replace(text)) }

var oneLine = strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ", "\r", " ")

// longest bounds texts in tables; pages of one resource show all.
const longest = 60

// short is the beginning of a text.
func short(text string) string {
	text = clean(text)
	if r := []rune(text); len(r) > longest {
		return string(r[:longest-1]) + "…"
	}
	return text
}

// or returns the first text that is not empty.
func or(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func yes(b bool, text string) string {
	if b {
		return text
	}
	return ""
}

// compact is JSON on one line.
func compact(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return clean(string(raw))
	}
	return clean(unescaped(b.Bytes()))
}
