package api

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// The description of the API: OpenAPI 3.1 for programs (and 3.0 for older generators), and for people a page that the
// server renders from the same document without scripts, so that it works offline under the strictest policy.

//go:embed docs
var docs embed.FS

const docsPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// routeDocuments serves the documents about the routes added before. Each is rendered at its first request.
func (a *API) routeDocuments() {
	openapi := a.huma.OpenAPI()
	for _, d := range []struct {
		path, kind string
		write      func() ([]byte, error)
	}{
		{"/openapi.json", "application/openapi+json", openapi.MarshalJSON},
		{"/openapi.yaml", "application/openapi+yaml", openapi.YAML},
		{"/openapi-3.0.json", "application/openapi+json", openapi.Downgrade},
		{"/docs/style.css", "text/css; charset=utf-8", func() ([]byte, error) { return docs.ReadFile("docs/style.css") }},
		{"/docs/bell.svg", "image/svg+xml", func() ([]byte, error) { return docs.ReadFile("docs/bell.svg") }},
		{"/docs", "text/html; charset=utf-8", func() ([]byte, error) {
			var page bytes.Buffer
			err := reference.ExecuteTemplate(&page, "reference.gohtml", chaptersOf(openapi))
			return page.Bytes(), err
		}},
	} {
		written := sync.OnceValues(d.write)
		a.open("GET "+d.path, func(w http.ResponseWriter, r *http.Request) {
			content, err := written()
			if err != nil {
				problemOf(r.Context(), a.episodes, err).write(w)
				return
			}
			w.Header().Set("Content-Type", d.kind)
			w.Header().Set("Content-Security-Policy", docsPolicy)
			w.Header().Set("Referrer-Policy", "same-origin")
			w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
			_, _ = w.Write(content)
		})
	}
}

// chapter is a section of the page: the operations of one tag, or the types.
type chapter struct {
	Name       string
	Operations []operation
}

type operation struct {
	*huma.Operation
	Role      string
	Body      *huma.Schema
	Responses []response
}

type response struct {
	Status, Text string
	Schema       *huma.Schema
}

type pageOf struct {
	*huma.OpenAPI
	Chapters []chapter
	Types    []namedType
}

type namedType struct {
	Name string
	*huma.Schema
}

// The order of chapters for readers who are new to the API.
var (
	chapters = []string{"jobs", "runs", "system", "access"}
	methods  = []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete}
)

func chaptersOf(o *huma.OpenAPI) pageOf {
	by := map[string][]operation{}
	for _, item := range o.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Patch, item.Put, item.Delete} {
			if op != nil {
				by[op.Tags[0]] = append(by[op.Tags[0]], operationOf(op))
			}
		}
	}
	page := pageOf{OpenAPI: o}
	for name, list := range by {
		slices.SortFunc(list, func(a, b operation) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), slices.Index(methods, a.Method)-slices.Index(methods, b.Method))
		})
		page.Chapters = append(page.Chapters, chapter{name, list})
	}
	slices.SortFunc(page.Chapters, func(a, b chapter) int {
		return cmp.Or(slices.Index(chapters, a.Name)-slices.Index(chapters, b.Name), strings.Compare(a.Name, b.Name))
	})
	for name, s := range o.Components.Schemas.Map() {
		page.Types = append(page.Types, namedType{name, s})
	}
	slices.SortFunc(page.Types, func(a, b namedType) int { return strings.Compare(a.Name, b.Name) })
	return page
}

func operationOf(op *huma.Operation) operation {
	out := operation{Operation: op, Role: fmt.Sprint(op.Extensions["x-role"])}
	if also, is := op.Extensions["x-also"].([]string); is {
		out.Role = strings.Join(also, ", ") + ", " + out.Role
	}
	if op.RequestBody != nil {
		out.Body = op.RequestBody.Content["application/json"].Schema
	}
	for status, r := range op.Responses {
		answer := response{Status: status, Text: r.Description}
		for _, media := range r.Content {
			answer.Schema = media.Schema
		}
		out.Responses = append(out.Responses, answer)
	}
	slices.SortFunc(out.Responses, func(a, b response) int { return strings.Compare(a.Status, b.Status) })
	return out
}

var reference = template.Must(template.New("").Funcs(template.FuncMap{
	"type": typeOf,
	"link": func(s *huma.Schema) string {
		if s != nil && s.Items != nil {
			s = s.Items
		}
		if s == nil || s.Ref == "" {
			return ""
		}
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	},
	"needed": func(s *huma.Schema, name string) bool { return slices.Contains(s.Required, name) },
	"bounds": boundsOf,
}).ParseFS(docs, "docs/*.gohtml"))

// typeOf returns a short name of a type.
func typeOf(s *huma.Schema) string {
	switch {
	case s == nil:
		return "nothing"
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case s.Type == "array":
		return "list of " + typeOf(s.Items)
	case s.Format != "" && s.Type == "string":
		return s.Format
	case s.Type == "":
		return "any JSON"
	}
	return s.Type
}

// boundsOf describes the limits of a value.
func boundsOf(s *huma.Schema) string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if len(s.Enum) > 0 {
		words, _ := json.Marshal(s.Enum)
		say("one of %s", strings.Trim(strings.ReplaceAll(strings.ReplaceAll(string(words), `"`, ""), ",", ", "), "[]"))
	}
	if s.Minimum != nil && s.Maximum != nil {
		say("%v to %v", *s.Minimum, *s.Maximum)
	}
	if s.MaxLength != nil {
		say("up to %d characters", *s.MaxLength)
	}
	if s.MaxItems != nil {
		say("up to %d items", *s.MaxItems)
	}
	if s.Default != nil {
		say("default: %v", s.Default)
	}
	return strings.Join(parts, "; ")
}
