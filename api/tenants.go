package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Tenant is a separate set of jobs, runs, settings and tokens.
type Tenant struct {
	Name      string         `json:"name"`
	Title     string         `json:"title,omitempty"`
	Zone      string         `json:"zone" doc:"Default time zone of its jobs."`
	Limits    TenantLimits   `json:"limits"`
	Created   time.Time      `json:"created"`
	By        string         `json:"by" doc:"Who created it."`
	Suspended *TenantChange  `json:"suspended,omitempty" doc:"Its runs wait, and no run is created."`
	Deleted   *TenantChange  `json:"deleted,omitempty" doc:"Its data is being deleted."`
	Jobs      int            `json:"jobs"`
	Runs      map[string]int `json:"runs" doc:"Unfinished runs, by state."`
	Workers   int            `json:"workers"`
}

// TenantChange is who suspended or deleted a tenant, and when.
type TenantChange struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// TenantLimits limits a tenant.
type TenantLimits struct {
	Jobs    int   `json:"jobs" doc:"0 = only the server's limits apply; here and below."`
	Waiting int   `json:"waiting" doc:"Runs that have not started."`
	Workers int   `json:"workers" doc:"Connected workers."`
	Starts  Rate  `json:"starts" doc:"Rate of attempts that start; more wait."`
	Bytes   int64 `json:"bytes" doc:"Bytes of arguments, results and checkpoints of unfinished runs."`
}

// LimitsChange is limits of a tenant in a request: those that are given.
type LimitsChange struct {
	Jobs    *int   `json:"jobs,omitempty" minimum:"0" doc:"0 = only the server's limits apply; here and below."`
	Waiting *int   `json:"waiting,omitempty" minimum:"0" doc:"Runs that have not started."`
	Workers *int   `json:"workers,omitempty" minimum:"0" doc:"Connected workers."`
	Starts  *Rate  `json:"starts,omitempty" doc:"Rate of attempts that start; more wait."`
	Bytes   *int64 `json:"bytes,omitempty" minimum:"0" doc:"Bytes of arguments, results and checkpoints of unfinished runs."`
}

// over returns limits with those of the request in place.
func (l *LimitsChange) over(was kernel.TenantLimits) kernel.TenantLimits {
	if l == nil {
		return was
	}
	take(&was.Jobs, l.Jobs)
	take(&was.Waiting, l.Waiting)
	take(&was.Workers, l.Workers)
	take(&was.Starts, (*jobs.Rate)(l.Starts))
	take(&was.Bytes, l.Bytes)
	return was
}

func take[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func tenantOf(t ops.Tenant) Tenant {
	n := &t.Tenancy
	out := Tenant{Name: string(t.Tenant), Title: n.Title, Zone: zoneOf(t.Global), Created: n.Since, By: n.By, Jobs: t.Jobs, Workers: t.Workers, Runs: map[string]int{},
		Suspended: tenantChange(n.Suspended), Deleted: tenantChange(n.Deleted),
		Limits: TenantLimits{Jobs: n.Limits.Jobs, Waiting: n.Limits.Waiting, Workers: n.Limits.Workers, Starts: Rate(n.Limits.Starts), Bytes: n.Limits.Bytes}}
	for state, count := range t.Live {
		out.Runs[state.String()] = count
	}
	return out
}

func zoneOf(g *kernel.Global) string {
	if z := g.Defaults.Zone; z != nil {
		return *z
	}
	if z := g.File.Defaults.Zone; z != nil {
		return *z
	}
	return "UTC"
}

func tenantChange(d kernel.Debug) *TenantChange {
	if !d.On {
		return nil
	}
	return &TenantChange{d.By, d.At}
}

// TenantPath names a tenant.
type TenantPath struct {
	Name string `path:"name" minLength:"1" maxLength:"200"`
}

type tenantList struct {
	Items []Tenant `json:"items" nullable:"false"`
}

type tenantAnswer struct{ Body Tenant }

func answerTenant(t ops.Tenant, err error) (*tenantAnswer, error) {
	if err != nil {
		return nil, err
	}
	return &tenantAnswer{tenantOf(t)}, nil
}

// CreatedTenant is a new tenant with a token for its first admin.
type CreatedTenant struct {
	Tenant
	Token string `json:"token" doc:"Token of its first admin. It is shown only once."`
}

func (a *API) routeTenants() {
	tags := []string{"tenants"}
	register(a, ops.Admin, huma.Operation{OperationID: "list-tenants", Method: http.MethodGet, Path: "/tenants", Tags: tags, Summary: "List tenants by name",
		Description: "This and all other requests about tenants are for administrators of the server: admins of the default tenant, which is not listed."},
		func(ctx context.Context, in *struct {
			Q     string `query:"q" maxLength:"200" doc:"Part of the name or the title."`
			After string `query:"after" maxLength:"200" doc:"Names after this one."`
			Limit int    `query:"limit" minimum:"0" maximum:"1000" doc:"0 = all."`
		}) (*struct{ Body tenantList }, error) {
			list, _, err := a.ops.Tenants(ctx, who(ctx), ops.TenantQuery{Text: in.Q, After: jobs.Tenant(in.After), Limit: in.Limit})
			if err != nil {
				return nil, err
			}
			out := tenantList{Items: make([]Tenant, len(list))}
			for i, t := range list {
				out.Items[i] = tenantOf(t)
			}
			return &struct{ Body tenantList }{out}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "create-tenant", Method: http.MethodPost, Path: "/tenants", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Create a tenant", Description: "The response has a token for its first admin. Refused if the server requires no authentication."},
		func(ctx context.Context, in *struct {
			Body struct {
				Name   string        `json:"name" minLength:"1" maxLength:"200"`
				Title  string        `json:"title,omitempty" maxLength:"200"`
				Zone   string        `json:"zone,omitempty" maxLength:"100" doc:"Default time zone of its jobs."`
				Limits *LimitsChange `json:"limits,omitempty"`
			}
		}) (*struct{ Body CreatedTenant }, error) {
			b := &in.Body
			t, token, err := a.ops.CreateTenant(ctx, who(ctx), ops.NewTenant{Name: jobs.Tenant(b.Name), Title: b.Title, Zone: b.Zone, Limits: b.Limits.over(kernel.TenantLimits{})})
			if err != nil {
				return nil, err
			}
			return &struct{ Body CreatedTenant }{CreatedTenant{tenantOf(t), token}}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "get-tenant", Method: http.MethodGet, Path: "/tenants/{name}", Tags: tags, Summary: "Show a tenant"},
		func(ctx context.Context, in *TenantPath) (*tenantAnswer, error) {
			return answerTenant(a.ops.Tenant(ctx, who(ctx), jobs.Tenant(in.Name)))
		})
	register(a, ops.Admin, huma.Operation{OperationID: "change-tenant", Method: http.MethodPatch, Path: "/tenants/{name}", Tags: tags, Summary: "Change a tenant's title or limits"},
		func(ctx context.Context, in *struct {
			TenantPath
			Body struct {
				Title  *string       `json:"title,omitempty" maxLength:"200"`
				Limits *LimitsChange `json:"limits,omitempty"`
			}
		}) (*tenantAnswer, error) {
			t, err := a.ops.Tenant(ctx, who(ctx), jobs.Tenant(in.Name))
			if err != nil {
				return nil, err
			}
			limits := in.Body.Limits.over(t.Tenancy.Limits)
			return answerTenant(a.ops.ChangeTenant(ctx, who(ctx), jobs.Tenant(in.Name), in.Body.Title, &limits))
		})
	for _, s := range []struct {
		verb, text string
		on         bool
	}{{"suspend", "Its runs wait, no run is created, and due times become ledger entries. Attempts under way continue.", true}, {"resume", "", false}} {
		register(a, ops.Admin, huma.Operation{OperationID: s.verb + "-tenant", Method: http.MethodPost, Path: "/tenants/{name}/" + s.verb, Tags: tags,
			Summary: map[bool]string{true: "Suspend a tenant", false: "Resume a tenant"}[s.on], Description: s.text},
			func(ctx context.Context, in *TenantPath) (*tenantAnswer, error) {
				return answerTenant(a.ops.SuspendTenant(ctx, who(ctx), jobs.Tenant(in.Name), s.on))
			})
	}
	register(a, ops.Admin, huma.Operation{OperationID: "delete-tenant", Method: http.MethodDelete, Path: "/tenants/{name}", Tags: tags, DefaultStatus: http.StatusAccepted,
		Summary: "Delete a tenant", Description: "With all that it has, in the background. It must be suspended, and no attempt under way."},
		func(ctx context.Context, in *TenantPath) (*tenantAnswer, error) {
			return answerTenant(a.ops.DeleteTenant(ctx, who(ctx), jobs.Tenant(in.Name)))
		})
	register(a, ops.Admin, huma.Operation{OperationID: "grant-tenant-token", Method: http.MethodPost, Path: "/tenants/{name}/tokens", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Create a token in a tenant", Description: "For its first admin, or if all of its admins have lost theirs."},
		func(ctx context.Context, in *struct {
			TenantPath
			grantInput
		}) (*struct{ Body GrantedToken }, error) {
			inside, err := a.ops.Inside(ctx, who(ctx), jobs.Tenant(in.Name))
			if err != nil {
				return nil, err
			}
			return a.grantToken(ctx, inside, &in.grantInput)
		})
	a.routeExport()
}

// routeExport describes the export through huma and serves it by hand: it is as large as the tenant.
func (a *API) routeExport() {
	op := a.rule(ops.Admin, huma.Operation{OperationID: "export-tenant", Method: http.MethodGet, Path: "/tenants/{name}/export", Tags: []string{"tenants"}, Summary: "Export a tenant",
		Description: "One JSON object per line: {\"kind\": ..., \"value\": ...}, with the kinds tenant, settings, calendar, job, token, run, missed and change, and end at the end. " +
			"It contains arguments and results, and no secrets.",
		Parameters: []*huma.Param{{Name: "name", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}}})
	op.Responses = map[string]*huma.Response{
		"200": {Description: "OK", Content: map[string]*huma.MediaType{"application/x-ndjson": {Schema: &huma.Schema{Type: huma.TypeString}}}},
		"default": {Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {
			Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}},
	}
	a.huma.OpenAPI().AddOperation(&op)
	a.mux.HandleFunc(op.Method+" "+op.Path, a.export)
	a.long[op.Method+" "+op.Path] = true
}

func (a *API) export(w http.ResponseWriter, r *http.Request) {
	to := &download{w: w, stream: http.NewResponseController(w), kind: "application/x-ndjson", file: r.PathValue("name") + ".jsonl"}
	a.downloaded(w, r, to, a.exportTo(r.Context(), who(r.Context()), jobs.Tenant(r.PathValue("name")), to))
}

// exportTo writes all that a tenant has.
func (a *API) exportTo(ctx context.Context, asker ops.Who, name jobs.Tenant, to *download) error {
	t, err := a.ops.Tenant(ctx, asker, name)
	if err != nil {
		return err
	}
	asker.Tenant = name
	lines := json.NewEncoder(to)
	lines.SetEscapeHTML(false)
	line := func(kind string, value any) error {
		return lines.Encode(struct {
			Kind  string `json:"kind"`
			Value any    `json:"value,omitempty"`
		}{kind, value})
	}
	if err := line("tenant", tenantOf(t)); err != nil {
		return err
	}
	if err := line("settings", settingsOf(t.Global)); err != nil {
		return err
	}
	err = a.ops.Export(ctx, asker, ops.Exported{
		Calendar: func(c *kernel.Calendar) error { return line("calendar", calendarOf(ops.Calendar{Calendar: c})) },
		Job:      func(j ops.Job) error { return line("job", jobOf(j)) },
		Token:    func(t *kernel.Token) error { return line("token", tokenOf(t)) },
		Run:      func(run *kernel.Run) error { return line("run", whole(run, ops.Attempt{})) },
		Missed: func(key jobs.Key, m *kernel.Missed) error {
			return line("missed", struct {
				Job jobs.Key `json:"job"`
				Missed
			}{key, missedOf(m)})
		},
		Change: func(c *kernel.Audit) error { return line("change", changeOf(c)) },
	})
	if err != nil {
		return err
	}
	return line("end", nil)
}
