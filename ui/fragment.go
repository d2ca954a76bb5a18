package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// A browser that was told of a change asks for the parts of its page again. Many look at the same page: one of them
// has it rendered, the others get the same bytes, and who has them already hears so (304).

const (
	fragmentLife = time.Second // progress and heartbeats change no row, so what is kept grows old by itself
	maxFragments = 256
)

// fragments are the parts of pages as they were last rendered.
type fragments struct {
	mu   sync.Mutex
	kept map[fragmentKey]*fragment
}

// fragmentKey is all that a fragment may depend on.
type fragmentKey struct {
	tenant jobs.Tenant
	role   ops.Role
	url    string
	origin string // by which whoever asks knows this server: it stands in what pages say for shells
}

// fragment is rendered once, by who comes first.
type fragment struct {
	change uint64 // of the tenant, when it was asked for
	at     time.Time
	once   sync.Once
	status int
	etag   string
	body   []byte
}

func isFragment(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("X-Fragment") != ""
}

// at is the place of a fragment: a fresh one to be rendered, or that of others who asked since the last change.
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

// fragment answers with the parts of a page that may change.
func (u *UI) fragment(w http.ResponseWriter, r *http.Request, v visitor, do handler) {
	part := &fragment{}
	// Only while somebody listens is it known when the rows change.
	if change, listening := u.hub.change(v.Who); listening {
		part = u.fragments.at(fragmentKey{v.Who.Tenant, v.Who.Role, r.URL.RequestURI(), u.origin(r)}, change, time.Now())
	}
	// Others may wait for it: who asked first may go, and it is rendered all the same.
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
		err = kernel.Refuse(jobs.NotFound, "there is no such page")
	}
	if err != nil {
		a = u.failed(r.Context(), r.URL.Path, err)
	}
	part.status = max(a.status, http.StatusOK)
	var out bytes.Buffer
	if err := u.parts[a.page].ExecuteTemplate(&out, "fragment", u.frameOf(r, v, a)); err != nil {
		u.log.ErrorContext(r.Context(), "fragment cannot be rendered", "page", a.page, "err", err)
		part.status = http.StatusInternalServerError
		return
	}
	part.body = out.Bytes()
	sum := sha256.Sum256(part.body)
	part.etag = `"` + hex.EncodeToString(sum[:12]) + `"`
}
