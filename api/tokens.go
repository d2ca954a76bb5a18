package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// Token describes a token, without its secret.
type Token struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Role    string     `json:"role" enum:"viewer,operator,admin,worker,client"`
	App     string     `json:"app,omitempty" doc:"Of a worker token: the only worker group that it may serve."`
	Scope   *Scope     `json:"scope,omitempty" doc:"Of an operator or client token: the jobs that it may act on; missing: all."`
	By      string     `json:"by" doc:"Who created it."`
	Created time.Time  `json:"created"`
	Until   *time.Time `json:"until,omitempty" doc:"When it expires; missing: when it is revoked."`
}

func tokenOf(t *kernel.Token) Token {
	return Token{ID: t.ID, Name: t.Name, Role: t.Role, App: t.App, Scope: scopeOf(&t.Scope), By: t.By, Created: t.Created, Until: when(t.Until)}
}

// Scope limits an operator or a client to some jobs: those whose key matches, or whose app is named, or that have a tag.
type Scope struct {
	Jobs []string `json:"jobs,omitempty" maxItems:"100" doc:"Keys, or patterns such as billing.*"`
	Apps []string `json:"apps,omitempty" maxItems:"100"`
	Tags []string `json:"tags,omitempty" maxItems:"100"`
}

func scopeOf(s *kernel.Scope) *Scope {
	if s == nil || s.All() {
		return nil
	}
	return &Scope{s.Keys, s.Apps, s.Tags}
}

// GrantedToken is a new token with its text, which is shown once.
type GrantedToken struct {
	Token
	Text string `json:"text" doc:"Send it as Authorization: Bearer. It is shown only once."`
}

type tokenList struct {
	Items []Token `json:"items" nullable:"false"`
}

type grantInput struct {
	Body struct {
		Name  string    `json:"name" minLength:"1" maxLength:"100" doc:"Name of its holder."`
		Role  string    `json:"role" enum:"viewer,operator,admin,worker,client"`
		App   string    `json:"app,omitempty" maxLength:"200" doc:"Of a worker token: the only worker group that it may serve."`
		Scope *Scope    `json:"scope,omitempty" doc:"Of an operator or client token: the only jobs that it may act on. A client with a scope may use HTTP only, not the bus."`
		For   *Duration `json:"for,omitempty" doc:"Validity. Default: until it is revoked."`
	}
}

// Change is one entry of the audit.
type Change struct {
	N      uint64    `json:"n" doc:"Number of the change."`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason,omitempty"`
	Verb   string    `json:"verb"`
	Target string    `json:"target" example:"job billing.charge"`
	Before *Object   `json:"before,omitempty" doc:"The changed fields before."`
	After  *Object   `json:"after,omitempty" doc:"The changed fields after."`
	From   string    `json:"from,omitempty" doc:"Address from which the request came, if it is recorded."`
	Prev   string    `json:"prev,omitempty" doc:"Hash of the change before it; missing for the first."`
	Hash   string    `json:"hash" doc:"SHA-256 of all fields and prev, hexadecimal."`
}

// AuditHead is the end of the audit.
type AuditHead struct {
	Tenant string `json:"tenant"`
	N      uint64 `json:"n" doc:"Number of the last change; 0: there is none."`
	Hash   string `json:"hash" doc:"Its hash, hexadecimal."`
}

type auditInput struct {
	Target string `query:"target" maxLength:"600" doc:"Only changes of this target, as the list spells it."`
	Actor  string `query:"actor" maxLength:"300" doc:"Only changes by this actor."`
	Before uint64 `query:"before" doc:"Changes before this number."`
	Since  uint64 `query:"since" doc:"Changes from this number on, oldest first."`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

type auditList struct {
	Items []Change `json:"items" nullable:"false"`
	Next  uint64   `json:"next,omitempty" doc:"Send it as before (as since, if since was sent) for the next page; missing on the last one."`
}

// Self is the identity of the caller.
type Self struct {
	Actor  string `json:"actor"`
	Role   string `json:"role" enum:"none,worker,client,viewer,operator,admin"`
	Tenant string `json:"tenant"`
	Scope  *Scope `json:"scope,omitempty" doc:"The only jobs that the caller may act on; missing: all."`
}

func (a *API) routeTokens() {
	tags := []string{"access"}
	register(a, ops.Viewer, huma.Operation{OperationID: "whoami", Method: http.MethodGet, Path: "/whoami", Tags: tags, Summary: "Show the current identity"},
		func(ctx context.Context, _ *none) (*struct{ Body Self }, error) {
			asker := who(ctx)
			if asker.Tenant == "" {
				asker.Tenant = jobs.DefaultTenant
			}
			return &struct{ Body Self }{Self{Actor: asker.Actor, Role: asker.Role.String(), Tenant: string(asker.Tenant), Scope: scopeOf(asker.Scope)}}, nil
		}, ops.WorkerRole, ops.ClientRole)
	register(a, ops.Admin, huma.Operation{OperationID: "list-tokens", Method: http.MethodGet, Path: "/tokens", Tags: tags, Summary: "List tokens by name"},
		func(ctx context.Context, _ *none) (*struct{ Body tokenList }, error) {
			list, err := a.ops.Tokens(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			out := tokenList{Items: make([]Token, len(list))}
			for i, t := range list {
				out.Items[i] = tokenOf(t)
			}
			return &struct{ Body tokenList }{out}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "grant-token", Method: http.MethodPost, Path: "/tokens", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Create a token", Description: "Its text is only in this response: the server stores a hash."},
		func(ctx context.Context, in *grantInput) (*struct{ Body GrantedToken }, error) {
			return a.grantToken(ctx, who(ctx), in)
		})
	register(a, ops.Admin, huma.Operation{OperationID: "revoke-token", Method: http.MethodDelete, Path: "/tokens/{id}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Revoke a token", Description: "Its sessions end, too. The last admin token that does not expire cannot be revoked."},
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"100"`
		}) (*struct{}, error) {
			return nil, a.ops.Revoke(ctx, who(ctx), in.ID)
		})
	register(a, ops.Admin, huma.Operation{OperationID: "list-audit", Method: http.MethodGet, Path: "/audit", Tags: tags,
		Summary: "List the audit, newest first", Description: "Actor, target, before and after of each change. It never contains arguments, results or secrets."}, a.audit)
	register(a, ops.Admin, huma.Operation{OperationID: "get-audit-head", Method: http.MethodGet, Path: "/audit/head", Tags: tags,
		Summary: "Get the end of the audit", Description: "Exported lines that contain this hash, and whose chain is unbroken, are complete up to it."},
		func(ctx context.Context, _ *none) (*struct{ Body AuditHead }, error) {
			h, err := a.ops.AuditHead(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body AuditHead }{AuditHead{string(h.Tenant), h.N, hex.EncodeToString(h.Hash)}}, nil
		})
}

func (a *API) grantToken(ctx context.Context, asker ops.Who, in *grantInput) (*struct{ Body GrantedToken }, error) {
	want := ops.NewToken{Name: in.Body.Name, Role: in.Body.Role, App: in.Body.App}
	if s := in.Body.Scope; s != nil {
		want.Scope = kernel.Scope{Keys: s.Jobs, Apps: s.Apps, Tags: s.Tags}
	}
	if in.Body.For != nil {
		want.For = time.Duration(*in.Body.For)
	}
	t, text, err := a.ops.Grant(ctx, asker, want)
	if err != nil {
		return nil, err
	}
	return &struct{ Body GrantedToken }{GrantedToken{tokenOf(t), text}}, nil
}

func changeOf(c *kernel.Audit) Change {
	return Change{N: c.N, At: c.At, Actor: c.Actor, Reason: c.Reason, Verb: c.Verb, Target: c.Target,
		Before: object(json.RawMessage(c.Before)), After: object(json.RawMessage(c.After)), From: c.From, Prev: hex.EncodeToString(c.Prev), Hash: hex.EncodeToString(c.Hash)}
}

func (a *API) audit(ctx context.Context, in *auditInput) (*struct{ Body auditList }, error) {
	list, err := a.ops.Audits(ctx, who(ctx), metastore.AuditQuery{Target: in.Target, Actor: in.Actor, Before: in.Before, Since: in.Since, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	out := auditList{Items: make([]Change, len(list))}
	for i, c := range list {
		out.Items[i] = changeOf(c)
	}
	switch n := len(list); {
	case in.Since > 0 && n > 0: // the bus may carry fewer than the limit
		out.Next = list[n-1].N + 1
	case n == in.Limit:
		out.Next = list[n-1].N
	}
	return &struct{ Body auditList }{out}, nil
}
