package ops_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
	"github.com/carillon-scheduler/carillon/ops"
)

// refusedRequests are requests that were refused.
func refusedRequests(n int) []metastore.RefusedRequest {
	list := make([]metastore.RefusedRequest, max(n, 0))
	for i := range list {
		list[i] = metastore.RefusedRequest{Key: "app.work", Reason: "no"}
	}
	return list
}

// Refused requests are listed, retried and discarded with the caller's tenant, and each change is logged.
func TestRefusedRequests(t *testing.T) {
	d, box := newFixture(t), storetest.NewOutbox(refusedRequests(3)...)
	var log strings.Builder
	o := ops.New(ops.Config{Store: d.store, Outbox: box, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ctx := t.Context()
	if list, err := o.RefusedRequests(ctx, ann, 2); err != nil || len(list) != 2 || list[0].Number != 3 {
		t.Errorf("listed: %+v, %v", list, err)
	}
	eve := ops.Who{Tenant: "other", Actor: "person:eve", Role: ops.Admin}
	if list, err := o.RefusedRequests(ctx, eve, 2); err != nil || len(list) != 0 {
		t.Errorf("listed for another tenant: %+v, %v", list, err)
	}
	for _, change := range []func(context.Context, ops.Who, []int64) (int, error){o.RetryRefused, o.DiscardRefused} {
		long := ann
		long.Reason = strings.Repeat("x", 1_025)
		for _, c := range []struct {
			name    string
			who     ops.Who
			numbers []int64
			want    error
		}{
			{"no number", ann, nil, jobs.BadInput},
			{"too many", ann, make([]int64, 1_001), jobs.BadInput},
			{"a long reason", long, []int64{1}, jobs.BadInput},
			{"of another tenant", eve, []int64{1}, jobs.NotFound},
			{"a number that does not exist", ann, []int64{7}, jobs.NotFound},
		} {
			if n, err := change(ctx, c.who, c.numbers); !errors.Is(err, c.want) || n != 0 {
				t.Errorf("%s: %d, %v, want %v", c.name, n, err, c.want)
			}
		}
	}
	if list, _ := o.RefusedRequests(ctx, ann, 0); log.Len() > 0 || len(list) != 3 {
		t.Errorf("refused changes: %+v, logged %s", list, &log)
	}
	if n, err := o.RetryRefused(ctx, ann, []int64{1, 7}); err != nil || n != 1 || !slices.Equal(box.Retried(), []int64{1}) {
		t.Errorf("retried: %d, %v, %v", n, err, box.Retried())
	}
	if n, err := o.DiscardRefused(ctx, ann, []int64{2}); err != nil || n != 1 {
		t.Errorf("discarded: %d, %v", n, err)
	}
	box.Fail(fmt.Errorf("lost: %w", jobs.Unknown))
	if _, err := o.DiscardRefused(ctx, ann, []int64{3}); !errors.Is(err, jobs.Unknown) {
		t.Errorf("an unknown outcome: %v", err)
	}
	for _, want := range []string{`level=INFO msg="refused requests from transactions are changed" does=retry tenant=default actor=person:ann reason=because count=1 row="[1 7]"`,
		`level=INFO msg="refused requests from transactions are changed" does=discard tenant=default actor=person:ann reason=because count=1 row=[2]`,
		`level=WARN msg="it is unknown whether refused requests from transactions are changed" does=discard tenant=default actor=person:ann reason=because row=[3] err=`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, &log)
		}
	}
}

// A scheduler whose rows are not in a database has no refused requests.
func TestNoOutbox(t *testing.T) {
	d := newFixture(t)
	if list, err := d.RefusedRequests(t.Context(), ann, 0); err != nil || len(list) > 0 {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if _, err := d.RetryRefused(t.Context(), ann, []int64{1}); !errors.Is(err, jobs.Conflict) {
		t.Errorf("retried: %v", err)
	}
	if _, err := d.DiscardRefused(t.Context(), ann, []int64{1}); !errors.Is(err, jobs.Conflict) {
		t.Errorf("discarded: %v", err)
	}
}

// The overview reports refused requests, and does not depend on the outbox.
func TestRefusedRequestsNeedAttention(t *testing.T) {
	for n, want := range map[int]string{0: "[]", 1: "[{outbox 1 request from a transaction was refused after the commit. 1}]", 3: "[{outbox 3 requests from transactions were refused after the commit. 3}]",
		101: "[{outbox More than 100 requests from transactions were refused after the commit. 100}]", -1: "[]"} {
		d, box := newFixture(t), storetest.NewOutbox(refusedRequests(n)...)
		if n < 0 {
			box.Fail(jobs.Unavailable)
		}
		members := &members{workers: []ops.Worker{serving("app", "app.nightly", "app.often", "app.work")}}
		o, err := ops.New(ops.Config{Store: d.store, Outbox: box, Live: members}).Overview(t.Context(), ann)
		if err != nil {
			t.Fatal(err)
		}
		type short struct {
			Kind ops.AttentionKind
			Text string
			N    int
		}
		got := []short{}
		for _, a := range o.Attention {
			if a.Kind == ops.Undelivered {
				got = append(got, short{a.Kind, a.Text, a.N})
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%d refused requests: %v, want %s", n, got, want)
		}
	}
}

// A deleted tenant leaves no refused requests: they are neither shown to the next one of its name nor retried there.
func TestRefusedRequestsOfADeletedTenant(t *testing.T) {
	d := newFixture(t)
	rows := refusedRequests(metastore.MaxPage + 2)
	for i := range rows[1:] {
		rows[i].Tenant = "other"
	}
	box := storetest.NewOutbox(rows...)
	o := ops.New(ops.Config{Store: d.store, Outbox: box})
	d.apply(kernel.SetTenant{Name: "other", Create: true})
	d.apply(kernel.SuspendTenant{Name: "other", On: true})
	if _, err := o.DeleteTenant(t.Context(), root, "other"); err != nil {
		t.Fatal(err)
	}
	d.apply(kernel.DropTenant{Name: "other", Last: true})
	d.apply(kernel.SetTenant{Name: "other", Create: true})
	for tenant, want := range map[jobs.Tenant]int{"other": 0, jobs.DefaultTenant: 1} {
		if list, err := o.RefusedRequests(t.Context(), ops.Who{Tenant: tenant, Role: ops.Admin}, 0); err != nil || len(list) != want {
			t.Errorf("tenant %s has %d refused requests, want %d (%v)", tenant, len(list), want, err)
		}
	}
}
