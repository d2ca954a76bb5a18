package api

import (
	"mime"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/ops"
)

// routeBackup describes the download through huma and serves it by hand: it is as large as the store.
func (a *API) routeBackup() {
	op := a.rule(ops.Admin, huma.Operation{OperationID: "get-backup", Method: http.MethodGet, Path: "/backup", Tags: []string{"system"}, Summary: "Back up the store",
		Description: "Used by carillon backup, which writes it to a file and checks that it is complete. It contains arguments, results, log lines and hashes of tokens of all tenants. " +
			"Refused for a store in a database: back it up with the tools of that database."})
	op.Responses = map[string]*huma.Response{
		"200": {Description: "OK", Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}},
		"default": {Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {
			Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}},
	}
	a.huma.OpenAPI().AddOperation(&op)
	a.mux.HandleFunc(op.Method+" "+op.Path, a.backup)
	a.long[op.Method+" "+op.Path] = true
}

// backupPatience is how long the client of a backup may read nothing.
const backupPatience = time.Minute

func (a *API) backup(w http.ResponseWriter, r *http.Request) {
	to := &download{w: w, stream: http.NewResponseController(w), kind: "application/octet-stream", file: "carillon.backup"}
	a.downloaded(w, r, to, a.ops.Backup(r.Context(), who(r.Context()), to))
}

// downloaded ends a download.
func (a *API) downloaded(w http.ResponseWriter, r *http.Request, to *download, err error) {
	switch {
	case err == nil:
	case to.begun:
		a.log.WarnContext(r.Context(), "download aborted", "path", r.URL.Path, "err", err)
		panic(http.ErrAbortHandler) // the connection breaks, so that the client notices that the file is incomplete
	default:
		problemOf(r.Context(), a.episodes, err).write(w)
	}
}

// download is a response that starts with its first byte.
type download struct {
	w      http.ResponseWriter
	kind   string // its media type
	file   string // its name
	stream *http.ResponseController
	begun  bool
}

func (d *download) Write(b []byte) (int, error) {
	if !d.begun {
		d.begun = true
		d.w.Header().Set("Content-Type", d.kind)
		d.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.file}))
		_ = d.stream.SetReadDeadline(time.Time{}) // the server's limit on requests does not apply to a download
	}
	_ = d.stream.SetWriteDeadline(time.Now().Add(backupPatience)) // not supported by recorders in tests
	return d.w.Write(b)
}
