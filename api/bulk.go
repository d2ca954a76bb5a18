package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

// A bulk of runs is read, checked and answered item by item: huma would keep several copies of it in memory.

func isBulk(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == Prefix+"/runs"
}

type bulkInput struct {
	Idempotency string `header:"Idempotency-Key" maxLength:"200" doc:"A repeated key within 24 hours returns the runs that it created. Items are matched by position: a changed one is refused, and additional ones at the end are started."`
}

// bulkBody is the body's schema, for the document.
var bulkBody = reflect.TypeFor[struct {
	Items []NewRun `json:"items" minItems:"1" maxItems:"100000" nullable:"false"`
}]()

func (a *API) routeBulk() {
	schemas := a.huma.OpenAPI().Components.Schemas
	op := huma.Operation{OperationID: "create-runs", Method: http.MethodPost, Path: "/runs", Tags: []string{"runs"},
		DefaultStatus: http.StatusCreated, Summary: "Start many runs",
		Description: "All items are checked before the first run is created. If one is invalid, it is reported and nothing is stored."}
	op.Responses = map[string]*huma.Response{"201": {Description: http.StatusText(http.StatusCreated), Content: map[string]*huma.MediaType{
		"application/json": {Schema: schemas.Schema(reflect.TypeFor[runList](), true, "")}}}}
	register(a, ops.Operator, op, a.bulk, ops.ClientRole)
	// Only described: huma must not expect a body.
	a.huma.OpenAPI().Paths[Prefix+op.Path].Post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: schemas.Schema(bulkBody, true, "CreateInputBody")}}}
}

func (a *API) bulk(ctx context.Context, in *bulkInput) (*huma.StreamResponse, error) {
	body, _ := ctx.Value(countedKey{}).(*counted)
	if body == nil || len(body.bulk) == 0 {
		return nil, problem(http.StatusBadRequest, codeMalformed, "request body is required")
	}
	requests, err := a.requests(body)
	if err != nil {
		return nil, err
	}
	if in.Idempotency != "" {
		for i := range requests { // each run has a key of its own, which follows from the request's
			requests[i].Idempotency = kernel.DerivedID("bulk", in.Idempotency, fmt.Sprint(i)).String()
		}
	}
	made, err := a.ops.TriggerAll(ctx, who(ctx), requests)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", "application/json")
		c.SetStatus(http.StatusCreated)
		w := c.BodyWriter() // write errors are ignored: the client has gone
		text := []byte(`{"items":[`)
		for i, m := range made {
			item := listed(m.Run, a.attempt(m.Run))
			item.Duplicate = m.Duplicate
			row, err := json.Marshal(item)
			if err != nil {
				panic(err) // rows can always be written
			}
			if i > 0 {
				text = append(text, ',')
			}
			if text = append(text, row...); len(text) > 32<<10 {
				if _, err := w.Write(text); err != nil {
					return
				}
				text = text[:0]
			}
		}
		_, _ = w.Write(append(text, "]}\n"...))
	}}, nil
}

// requests reads the items of a bulk. strict has checked that the body is one JSON document.
func (a *API) requests(body *counted) ([]kernel.Create, error) {
	d := json.NewDecoder(bytes.NewReader(body.bulk))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, misfit("body", validation.MsgExpectedObject)
	}
	var requests []kernel.Create
	found := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "items" {
			return nil, misfit(fmt.Sprintf("body.%.60v", key), validation.MsgUnexpectedProperty)
		}
		found = true
		if requests, err = a.items(d, body); err != nil {
			return nil, err
		}
	}
	switch {
	case !found:
		return nil, misfit("body", fmt.Sprintf(validation.MsgExpectedRequiredProperty, "items"))
	case len(requests) == 0:
		return nil, misfit("body.items", fmt.Sprintf(validation.MsgExpectedMinItems, 1))
	}
	return requests, nil
}

// items reads an array of items.
func (a *API) items(d *json.Decoder, body *counted) ([]kernel.Create, error) {
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return nil, misfit("body.items", validation.MsgExpectedArray)
	}
	schemas := a.huma.OpenAPI().Components.Schemas
	schema := schemas.Schema(reflect.TypeFor[NewRun](), true, "")
	path, result := huma.NewPathBuffer(nil, 0), &huma.ValidateResult{}
	var requests []kernel.Create
	var raw json.RawMessage
	for i := 0; d.More(); i++ {
		if i == kernel.MaxBulk {
			return nil, misfit("body.items", fmt.Sprintf(validation.MsgExpectedMaxItems, kernel.MaxBulk))
		}
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		if err := body.take(perItem); err != nil {
			return nil, err
		}
		var parsed any
		if err := json.Unmarshal(raw, &parsed); err != nil {
			return nil, misfit(itemLocation(i), "cannot be read: a number is too large")
		}
		path.Reset()
		path.Push(itemLocation(i))
		if huma.Validate(schemas, schema, path, huma.ModeWriteToServer, parsed, result); len(result.Errors) > 0 {
			return nil, problemFromHuma(http.StatusUnprocessableEntity, "validation failed", result.Errors...)
		}
		var item NewRun
		if err := json.Unmarshal(raw, &item); err != nil {
			return nil, misfit(itemLocation(i), withoutTypes(err.Error()))
		}
		request, err := item.create(item.Job, itemLocation(i))
		if err != nil {
			return nil, &ops.ItemError{Index: i, Err: err}
		}
		requests = append(requests, request)
	}
	_, err := d.Token()
	return requests, err
}

// misfit returns the problem of a body that violates its schema at a place.
func misfit(location, message string) *Problem {
	return problem(http.StatusUnprocessableEntity, codeInvalid, location+": "+message, Fault{Location: location, Message: message})
}
