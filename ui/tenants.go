package ui

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// tenantsPage lists the tenants, with the form for a new one.
type tenantsPage struct {
	visitor
	List  []tenantRow
	Q     string // part of the name or the title
	First string // paths of other pages of the list, or ""
	Next  string
	Form  tenantForm
	Made  *madeToken
	Fault string
	Open  bool // the server requires no authentication
}

// tenantPage is one tenant.
type tenantPage struct {
	visitor
	tenantRow
	Form  tenantForm
	Made  *madeToken
	Fault string
}

// tenantRow is a tenant in the list.
type tenantRow struct {
	ops.Tenant
	State, Tone string
	Unfinished  int
}

// tenantForm is the typed values of a tenant.
type tenantForm struct{ Name, Title, Zone, Jobs, Waiting, Workers, Starts, Bytes string }

// ServerAdmin reports whether the visitor manages tenants.
func (v visitor) ServerAdmin() bool {
	return v.Admin() && v.AllTenants()
}

// AllTenants reports whether the visitor may see what counts the runs of all tenants.
func (v visitor) AllTenants() bool {
	return cmp.Or(v.Who.Tenant, jobs.DefaultTenant) == jobs.DefaultTenant
}

func rowOf(t ops.Tenant) tenantRow {
	r := tenantRow{Tenant: t, State: "active", Tone: "good"}
	for _, n := range t.Live {
		r.Unfinished += n
	}
	switch {
	case t.Tenancy.Deleted.On:
		r.State, r.Tone = "being deleted", "bad"
	case t.Tenancy.Suspended.On:
		r.State, r.Tone = "suspended", "warn"
	}
	return r
}

func (u *UI) tenants(r *http.Request, v visitor) (answer, error) {
	return u.tenantsAnswer(r, v, func(*tenantsPage) {})
}

// tenantRows is how many tenants a page lists.
const tenantRows = 50

// tenantsPath returns a page of the list.
func tenantsPath(text string, after jobs.Tenant) string {
	v := url.Values{}
	for name, value := range map[string]string{"q": text, "after": string(after)} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return "/tenants?" + v.Encode()
}

func (u *UI) tenantsAnswer(r *http.Request, v visitor, add func(*tenantsPage)) (answer, error) {
	q := ops.TenantQuery{Text: strings.TrimSpace(r.URL.Query().Get("q")), After: jobs.Tenant(r.URL.Query().Get("after")), Limit: tenantRows}
	list, more, err := u.ops.Tenants(r.Context(), v.Who, q)
	if err != nil {
		return answer{}, err
	}
	p := tenantsPage{visitor: v, Open: u.open, Q: q.Text}
	if q.After != "" {
		p.First = tenantsPath(q.Text, "")
	}
	if more {
		p.Next = tenantsPath(q.Text, list[len(list)-1].Global.Tenant)
	}
	for _, t := range list {
		p.List = append(p.List, rowOf(t))
	}
	add(&p)
	return answer{page: "tenants", title: "Tenants", data: p}, nil
}

func readTenantForm(r *http.Request) (f tenantForm) {
	for name, to := range map[string]*string{"name": &f.Name, "title": &f.Title, "zone": &f.Zone, "jobs": &f.Jobs, "waiting": &f.Waiting, "workers": &f.Workers, "starts": &f.Starts, "bytes": &f.Bytes} {
		*to = strings.TrimSpace(r.PostFormValue(name))
	}
	return f
}

// limits reads the limits: an empty field is none.
func (f *tenantForm) limits() (l kernel.TenantLimits, err error) {
	number := func(what, text string) (n int) {
		if text == "" || err != nil {
			return 0
		}
		if n, err = strconv.Atoi(text); err != nil {
			err = kernel.Invalid("invalid limit of %s %.40q: want a number, or nothing for no limit", what, text)
		}
		return n
	}
	l = kernel.TenantLimits{Jobs: number("jobs", f.Jobs), Waiting: number("waiting runs", f.Waiting), Workers: number("workers", f.Workers), Bytes: int64(number("bytes", f.Bytes))}
	if err == nil {
		l.Starts, err = kernel.ParseRate(f.Starts)
	}
	return l, err
}

func tenantFormOf(t ops.Tenant) tenantForm {
	text := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	l := &t.Tenancy.Limits
	f := tenantForm{Name: string(t.Tenant), Title: t.Tenancy.Title, Jobs: text(int64(l.Jobs)), Waiting: text(int64(l.Waiting)), Workers: text(int64(l.Workers)), Bytes: text(l.Bytes)}
	if l.Starts.Max > 0 {
		f.Starts = l.Starts.String()
	}
	return f
}

// wrong reports whether an error is the input's, so that its form is shown again.
func wrong(err error) bool {
	status := statusOf(err)
	return status == http.StatusUnprocessableEntity || status == http.StatusConflict
}

// createTenant creates a tenant and shows the token of its first admin. It does not redirect: that is shown only once.
func (u *UI) createTenant(r *http.Request, v visitor) (answer, error) {
	form := readTenantForm(r)
	v.Who.Reason = r.PostFormValue("reason")
	limits, err := form.limits()
	var token string
	if err == nil {
		_, token, err = u.ops.CreateTenant(r.Context(), v.Who, ops.NewTenant{Name: jobs.Tenant(form.Name), Title: form.Title, Zone: form.Zone, Limits: limits})
	}
	if err != nil && !wrong(err) {
		return answer{}, err
	}
	a, failed := u.tenantsAnswer(r, v, func(p *tenantsPage) {
		if err != nil {
			p.Form, p.Fault = form, said(err)
			return
		}
		p.Made = u.howToUse(r, &kernel.Token{Name: "of the first admin of " + form.Name, Role: kernel.RoleAdmin}, token)
	})
	if err != nil {
		a.status = statusOf(err)
	}
	return a, failed
}

func (u *UI) tenant(r *http.Request, v visitor) (answer, error) {
	return u.tenantAnswer(r, v, func(*tenantPage) {})
}

func (u *UI) tenantAnswer(r *http.Request, v visitor, add func(*tenantPage)) (answer, error) {
	t, err := u.ops.Tenant(r.Context(), v.Who, jobs.Tenant(r.PathValue("name")))
	if err != nil {
		return answer{}, err
	}
	p := tenantPage{visitor: v, tenantRow: rowOf(t), Form: tenantFormOf(t)}
	add(&p)
	return answer{page: "tenant", title: "Tenant " + string(t.Global.Tenant), data: p}, nil
}

// changeTenant does one of the forms of a tenant's page.
func (u *UI) changeTenant(r *http.Request, v visitor) (answer, error) {
	ctx, name, form := r.Context(), jobs.Tenant(r.PathValue("name")), readTenantForm(r)
	v.Who.Reason = r.PostFormValue("reason")
	next, did, made := "/tenants/"+string(name), "saved", (*madeToken)(nil)
	var err error
	switch r.PostFormValue("do") {
	case "suspend":
		_, err = u.ops.SuspendTenant(ctx, v.Who, name, true)
	case "resume":
		_, err = u.ops.SuspendTenant(ctx, v.Who, name, false)
		did = "resumed"
	case "delete":
		next, did = "/tenants", "deleting" // it may be gone by then
		if r.PostFormValue("confirm") != string(name) {
			err = kernel.Invalid("type the name of the tenant to delete it with all that it has")
		} else {
			_, err = u.ops.DeleteTenant(ctx, v.Who, name)
		}
	case "token":
		var inside ops.Who
		if inside, err = u.ops.Inside(ctx, v.Who, name); err == nil {
			var t *kernel.Token
			var text string
			if t, text, err = u.ops.Grant(ctx, inside, ops.NewToken{Name: form.Name, Role: kernel.RoleAdmin}); err == nil {
				made = u.howToUse(r, t, text)
			}
		}
	default:
		var limits kernel.TenantLimits
		if limits, err = form.limits(); err == nil {
			_, err = u.ops.ChangeTenant(ctx, v.Who, name, &form.Title, &limits)
		}
	}
	switch {
	case err != nil && !wrong(err):
		return answer{}, err
	case err == nil && made == nil:
		return goTo(next, did), nil
	}
	a, failed := u.tenantAnswer(r, v, func(p *tenantPage) {
		if p.Made = made; err != nil {
			p.Fault = said(err)
			if r.PostFormValue("do") == "" {
				p.Form = form
			}
		}
	})
	if err != nil {
		a.status = statusOf(err)
	}
	return a, failed
}
