package ui

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

// accessPage is the tokens and roles.
type accessPage struct {
	visitor
	Tokens   []tokenRow
	Sessions []ops.SessionInfo
	Roles    []roleChoice
	Form     tokenForm
	Made     *madeToken
	Fault    string
	Open     bool // the server requires no authentication
}

// tokenRow is a token in the list.
type tokenRow struct {
	*kernel.Token
	Over bool // it has expired
}

// tokenForm is the typed values of a new token.
type tokenForm struct{ Name, Role, App, Jobs, Tags, Days string }

// roleChoice is a role with its permissions, and the fields of the form that it takes: app, scope.
type roleChoice struct{ Name, May, Takes string }

// madeToken is a new token: the only time its text is shown.
type madeToken struct {
	Name, Text string
	Use        string // how to use it, for a shell
	How        string // the same as text
}

var roleChoices = []roleChoice{
	{kernel.RoleViewer, "reads everything", ""},
	{kernel.RoleOperator, "also starts, cancels, pauses and resumes, all jobs or some", "app scope"},
	{kernel.RoleAdmin, "also edits jobs and settings, and creates tokens", ""},
	{kernel.RoleWorker, "only runs jobs", "app"},
	{kernel.RoleClient, "only starts runs, of all jobs or some", "app scope"},
}

// taking returns which fields a role takes. The others are not shown, and so their values are not used.
func taking(role string) (app, scope bool) {
	for _, r := range roleChoices {
		if r.Name == role {
			return r.Takes != "", strings.Contains(r.Takes, "scope")
		}
	}
	return false, false
}

func (u *UI) tokens(r *http.Request, v visitor) (answer, error) {
	return u.accessAnswer(r, v, func(*accessPage) {})
}

func (u *UI) accessAnswer(r *http.Request, v visitor, add func(*accessPage)) (answer, error) {
	list, err := u.ops.Tokens(r.Context(), v.Who)
	if err != nil {
		return answer{}, err
	}
	p := accessPage{visitor: v, Roles: roleChoices, Form: tokenForm{Role: kernel.RoleViewer, Days: "90"}, Open: u.open}
	if p.Sessions, err = u.ops.Sessions(r.Context(), v.Who); err != nil {
		return answer{}, err
	}
	for _, t := range list {
		p.Tokens = append(p.Tokens, tokenRow{t, !t.Live(u.ops.Now())})
	}
	add(&p)
	return answer{page: "access", title: "Access", data: p}, nil
}

// grant creates a token and shows it. It does not redirect: the text is shown only once.
func (u *UI) grant(r *http.Request, v visitor) (answer, error) {
	form := tokenForm{Name: strings.TrimSpace(r.PostFormValue("name")), Role: r.PostFormValue("role"), App: strings.TrimSpace(r.PostFormValue("app")),
		Jobs: strings.TrimSpace(r.PostFormValue("jobs")), Tags: strings.TrimSpace(r.PostFormValue("tags")), Days: strings.TrimSpace(r.PostFormValue("days"))}
	v.Who.Reason = r.PostFormValue("reason")
	made, text, err := u.makeToken(r, v, form)
	if err != nil {
		status := statusOf(err)
		if status != http.StatusUnprocessableEntity && status != http.StatusConflict {
			return answer{}, err
		}
		a, failed := u.accessAnswer(r, v, func(p *accessPage) { p.Form, p.Fault = form, said(err) })
		a.status = status
		return a, failed
	}
	return u.accessAnswer(r, v, func(p *accessPage) { p.Made = u.howToUse(r, made, text) })
}

func (u *UI) makeToken(r *http.Request, v visitor, form tokenForm) (*kernel.Token, string, error) {
	want := ops.NewToken{Name: form.Name, Role: form.Role}
	switch app, scope := taking(form.Role); {
	case scope:
		want.Scope = kernel.Scope{Keys: listed(form.Jobs), Apps: listed(form.App), Tags: listed(form.Tags)}
	case app:
		want.App = form.App
	}
	if form.Days != "" {
		days, err := strconv.Atoi(form.Days)
		if err != nil || days < 1 {
			return nil, "", kernel.Invalid("invalid number of days %.20q: leave it empty for a token that does not expire", form.Days)
		}
		want.For = time.Duration(min(days, 100_000)) * 24 * time.Hour
	}
	return u.ops.Grant(r.Context(), v.Who, want)
}

// listed splits a field with a list.
func listed(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// howToUse returns instructions for a new token.
func (u *UI) howToUse(r *http.Request, t *kernel.Token, text string) *madeToken {
	m := &madeToken{Name: t.Name, Text: text}
	inFile := "umask 077; printf %s '" + text + "' > carillon.token\n# " + u.busAddress(r, "carillon.token")
	curl := "export CARILLON_TOKEN='" + text + "'\ncurl -H \"Authorization: Bearer $CARILLON_TOKEN\" "
	start := curl + "-H 'Content-Type: application/json' -d '{}' " + quoted(u.origin(r)+"/api/v1/jobs/JOB/trigger")
	switch {
	case t.Role == kernel.RoleClient && !t.Scope.All():
		m.How, m.Use = "Use it for the API and the command line, to start runs. The bus takes no token with a limit:", start
	case t.Role == kernel.RoleClient:
		m.How = "Use it for the API and the command line, to start runs, or store it in a file that only the program can read, and name the file in the bus address:"
		m.Use = start + "\n\n" + inFile
	case t.Role == kernel.RoleWorker:
		m.How, m.Use = "Store it in a file that only the program can read, and name the file in the bus address:", inFile
	default:
		m.How, m.Use = "Use it to sign in here, or for the API and the command line:", curl+quoted(u.origin(r)+"/api/v1/whoami")
	}
	return m
}

func (u *UI) revoke(r *http.Request, v visitor) (answer, error) {
	v.Who.Reason = r.PostFormValue("reason")
	if err := u.ops.Revoke(r.Context(), v.Who, r.PathValue("id")); err != nil {
		return u.accessFault(r, v, err, http.StatusConflict, http.StatusNotFound)
	}
	return goTo("/access", "revoked"), nil
}

// accessFault shows an error of one of these statuses on the page; others have a page of their own.
func (u *UI) accessFault(r *http.Request, v visitor, err error, shown ...int) (answer, error) {
	status := statusOf(err)
	if !slices.Contains(shown, status) {
		return answer{}, err
	}
	a, failed := u.accessAnswer(r, v, func(p *accessPage) { p.Fault = said(err) })
	a.status = status
	return a, failed
}
