package metastore

import (
	"crypto/ed25519"
	"encoding/hex"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// What exported ledgers need: the key that signs them, and the schedules that a job had.

// ledgerKey stores the key that signs ledgers, once.
func (c *change) ledgerKey(k kernel.LedgerKey) error {
	s := stateOf(c.tx)
	if len(s.LedgerSeed) > 0 {
		c.effect.Existing, c.effect.LedgerSeed = true, s.LedgerSeed
		return nil
	}
	s.LedgerSeed = k.Seed
	c.tx.Put(&s)
	c.effect.LedgerSeed = k.Seed
	public := ed25519.NewKeyFromSeed(k.Seed).Public().(ed25519.PublicKey)
	c.audit("ledger key", nil, fields{"public": hex.EncodeToString(public)})
	return nil
}

// scheduled stores the schedule that a job had until now, for exports of its ledger. A due time that was decided ahead
// of time, because runs may start early, still belongs to it.
func (c *change) scheduled(before *kernel.Definition) {
	until := c.at
	if before.Cursor.After(until) {
		until = before.Cursor
	}
	h, ok := c.tx.Get(kernel.HistoryRef(before.Tenant, before.UID)).(*kernel.History)
	if !ok {
		h = &kernel.History{Tenant: before.Tenant, Job: before.UID}
	}
	next := *h
	next.Schedules = append(slices.Clip(h.Schedules), before.Earlier(until))
	next.Schedules = next.Schedules[max(0, len(next.Schedules)-kernel.MaxSchedules):]
	c.tx.Put(&next)
}
