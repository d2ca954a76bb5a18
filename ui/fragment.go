package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// A browser that gets an event fetches the parts of its page again. If many show the same page, one request renders it,
// the others get the same bytes, and those that have them already get 304.

const (
	fragmentLife = time.Second // progress and heartbeats change no row, so fragments expire
	maxFragments = 256
)

// fragments caches the rendered parts of pages.
type fragments struct {
	mu   sync.Mutex
	kept map[fragmentKey]*fragment
}

// fragmentKey is all that a fragment may depend on.
type fragmentKey struct {
	tenant jobs.Tenant
	role   ops.Role
	scope  string
	url    string
	origin string // the server's address as the browser knows it: commands on pages contain it
}

// fragment is rendered once, by the first request.
type fragment struct {
	change uint64 // of the tenant, at the time of the request
	at     time.Time
	once   sync.Once
	status int
	etag   string
	body   []byte
}

func isFragment(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("X-Fragment") != ""
}

// personal reports whether a page shows what others of the role must not get: the tenants of a person, or the ID that
// makes a form's request idempotent.
func personal(path string) bool { return path == "/session" || strings.HasPrefix(path, "/bulk/") }

// at returns the place of a fragment: a new one to render, or that of other requests since the last change.
func (f *fragments) at(key fragmentKey, change uint64, now time.Time) *fragment {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.kept[key]; kept != nil && kept.change == change && now.Sub(kept.at) < fragmentLife {
		return kept
	}
	if f.kept == nil || len(f.kept) >= maxFragments {
		f.kept = map[fragmentKey]*fragment{}
	}
	fresh := &fragment{change: change, at: now}
	f.kept[key] = fresh
	return fresh
}

// fragment serves the parts of a page that may change.
func (u *UI) fragment(w http.ResponseWriter, r *http.Request, v visitor, do handler) {
	part := &fragment{}
	// The hub only knows of changes while a browser is connected.
	if change, listening := u.hub.change(v.Who); listening && !personal(r.URL.Path) {
		part = u.fragments.at(fragmentKey{v.Who.Tenant, v.Who.Role, v.scope(), r.URL.RequestURI(), u.origin(r)}, change, time.Now())
	}
	// Other requests may wait for it: it is rendered even if the first one is cancelled.
	part.once.Do(func() { u.renderPart(part, r.WithContext(context.WithoutCancel(r.Context())), v, do) })
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("ETag", part.etag)
	w.Header().Set("Cache-Control", "private, no-cache")
	if part.status == http.StatusOK && r.Header.Get("If-None-Match") == part.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.WriteHeader(part.status)
	_, _ = w.Write(part.body)
}

func (u *UI) renderPart(part *fragment, r *http.Request, v visitor, do handler) {
	a, err := do(r, v)
	if err == nil && a.page == "" {
		err = kernel.Refuse(jobs.NotFound, "page not found")
	}
	if err != nil {
		a = u.failed(r.Context(), r.URL.Path, err)
	}
	part.status = max(a.status, http.StatusOK)
	var out bytes.Buffer
	if err := u.parts[a.page]().ExecuteTemplate(&out, "fragment", u.frameOf(r, v, a)); err != nil {
		u.log.ErrorContext(r.Context(), "cannot render fragment", "page", a.page, "err", err)
		part.status = http.StatusInternalServerError
		return
	}
	part.body = visible(out.Bytes())
	sum := sha256.Sum256(part.body)
	part.etag = `"` + hex.EncodeToString(sum[:12]) + `"`
}
