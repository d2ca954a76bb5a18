package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// LedgerKey is the public key that signs exported ledgers.
type LedgerKey struct {
	Key string `json:"key" doc:"Ed25519 public key, hexadecimal."`
}

// routeLedger describes the export through huma and serves it by hand: it may be long.
func (a *API) routeLedger() {
	tags := []string{"jobs"}
	register(a, ops.Viewer, huma.Operation{OperationID: "get-ledger-key", Method: http.MethodGet, Path: "/ledger/key", Tags: tags,
		Summary: "Get the public key of exported ledgers", Description: "The first call makes the key."},
		func(ctx context.Context, _ *none) (*struct{ Body LedgerKey }, error) {
			key, err := a.ops.LedgerKey(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body LedgerKey }{LedgerKey{key}}, nil
		})
	op := a.rule(ops.Viewer, huma.Operation{OperationID: "export-ledger", Method: http.MethodGet, Path: "/ledger/export", Tags: tags, Summary: "Export a signed ledger",
		Description: "Lines of JSON which prove that each due time of a range had a run or a reason. carillon ledger verify checks them. A node writes one ledger at a time."})
	text := func(format string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: format} }
	op.Parameters = []*huma.Param{
		{Name: "job", In: "query", Description: "Key of a recurring job. Default: all.", Schema: text("")},
		{Name: "from", In: "query", Required: true, Description: "Due times from here on.", Schema: text("date-time")},
		{Name: "to", In: "query", Description: "Due times before this. Default and maximum: now.", Schema: text("date-time")},
	}
	op.Responses = map[string]*huma.Response{
		"200": {Description: "OK", Content: map[string]*huma.MediaType{"application/x-ndjson": {Schema: text("")}}},
		"default": {Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {
			Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}},
	}
	a.huma.OpenAPI().AddOperation(&op)
	a.mux.HandleFunc(op.Method+" "+op.Path, a.ledger)
	a.long[op.Method+" "+op.Path] = true
}

func (a *API) ledger(w http.ResponseWriter, r *http.Request) {
	to := &download{w: w, stream: http.NewResponseController(w), kind: "application/x-ndjson", file: "carillon-ledger.jsonl"}
	q, err := ledgerRange(r)
	if err == nil {
		err = a.ops.ExportLedger(r.Context(), who(r.Context()), q, to)
	}
	a.downloaded(w, r, to, err)
}

// ledgerRange reads the query of an export.
func ledgerRange(r *http.Request) (q ops.LedgerRange, err error) {
	for name, values := range r.URL.Query() {
		text := values[0]
		switch name {
		case "job":
			q.Job = jobs.Key(text)
			err = q.Job.Check()
		case "from":
			q.From, err = time.Parse(time.RFC3339, text)
		case "to":
			q.To, err = time.Parse(time.RFC3339, text)
		default:
			err = kernel.Invalid("unknown parameter")
		}
		if err != nil || len(values) > 1 {
			return q, kernel.Invalid("invalid %.40q %.60q: want job, a key, or from and to, times as in RFC 3339", name, text)
		}
	}
	if q.From.IsZero() {
		return q, kernel.Invalid("from is missing: want a time as in RFC 3339")
	}
	return q, nil
}
