package ops

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/ledgerfile"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/ledger"
)

// LedgerRange selects the due times of an export.
type LedgerRange struct {
	Job      jobs.Key  // "" = all recurring jobs of the tenant
	From, To time.Time // due times from From and before To, which is at most now
}

// LedgerKey returns the public key that signs exported ledgers, hexadecimal. The first call makes the key.
func (o *Ops) LedgerKey(ctx context.Context, who Who) (string, error) {
	key, err := o.ledgerKey(ctx, who)
	if err != nil {
		return "", err
	}
	return ledgerfile.PublicKey(key), nil
}

func (o *Ops) ledgerKey(ctx context.Context, who Who) (ed25519.PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // it never fails
	effect, err := o.apply(ctx, who, kernel.LedgerKey{Seed: seed})
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(effect.LedgerSeed), nil
}

// ExportLedger writes a signed ledger: a record for each due time of a range, with its run or with the reason why there
// is none. An error may come after a part was written; only a whole ledger has a signature.
func (o *Ops) ExportLedger(ctx context.Context, who Who, q LedgerRange, to io.Writer) error {
	now := o.Now()
	if q.To.IsZero() || q.To.After(now) {
		q.To = now
	}
	if !q.From.Before(q.To) {
		return kernel.Invalid("invalid range: from %s must be before to %s", clock(q.From), clock(q.To))
	}
	if !o.exporting.TryLock() {
		return kernel.Exhausted(kernel.BoundLedgerExports, "another ledger is being exported by this node: try again later")
	}
	defer o.exporting.Unlock()
	defs, err := o.ledgerJobs(ctx, who, q.Job)
	if err != nil {
		return err
	}
	head := ledgerfile.Header{Tenant: who.tenant(), From: q.From.UTC(), To: q.To.UTC(), At: now.UTC()}
	if len(defs) > 0 {
		if head.Calendars, err = ledger.Calendars(ctx, o.store, head.Tenant); err != nil {
			return err
		}
	}
	key, err := o.ledgerKey(ctx, who)
	if err != nil {
		return err
	}
	// The header comes first and has what the records are checked by, so all jobs are read before it is written.
	parts := make([]ledger.Part, len(defs))
	for i, d := range defs {
		if parts[i], err = ledger.Read(ctx, o.store, head.Tenant, d.Key, q.From, q.To, now); err != nil {
			return err
		}
		head.Jobs = append(head.Jobs, parts[i].Job)
	}
	w, err := ledgerfile.NewWriter(to, key, head)
	if err != nil {
		return err
	}
	for i := range parts {
		for _, r := range parts[i].Records {
			if err := w.Write(r); err != nil {
				return err
			}
		}
	}
	return w.Close()
}

// ledgerJobs returns the recurring jobs of an export, by key.
func (o *Ops) ledgerJobs(ctx context.Context, who Who, key jobs.Key) ([]*kernel.Definition, error) {
	if key != "" {
		d, err := o.definition(ctx, who, key)
		if err != nil {
			return nil, err
		}
		if d.Kind != kernel.Recurring {
			return nil, kernel.Refuse(jobs.Conflict, "job %s is triggered: it has no due times, and no ledger", key)
		}
		return []*kernel.Definition{d}, nil
	}
	var defs []*kernel.Definition
	err := metastore.EachDefinition(ctx, o.store, who.tenant(), func(part []*kernel.Definition) error {
		for _, d := range part {
			if d.Kind == kernel.Recurring {
				defs = append(defs, d)
			}
		}
		return nil
	})
	return defs, err
}
