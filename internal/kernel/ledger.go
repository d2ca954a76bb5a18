package kernel

import "crypto/ed25519"

// LedgerKey makes the key that signs exported ledgers, unless the store has one: the first that is committed stays. Its
// Effect has the seed of the key that the store has.
//
// The seed is a replicated field that no page, API or client can read: only nodes receive the Effect. Backups contain
// it, so that a restored store signs with the same key, and so do the tables of a database.
type LedgerKey struct {
	Seed []byte // of an Ed25519 key, random
}

// Verb returns the verb of the command.
func (LedgerKey) Verb() Verb { return VerbLedgerKey }

// Check validates the seed.
func (c LedgerKey) Check() error {
	if len(c.Seed) != ed25519.SeedSize {
		return Invalid("seed of a ledger key has %d bytes, want %d", len(c.Seed), ed25519.SeedSize)
	}
	return nil
}
