package embed

import "context"

// AuditSink receives the audit as it grows: see Config.AuditSinks.
type AuditSink interface {
	// Name identifies the sink: progress is stored under it.
	Name() string
	// Send delivers lines of JSON, each with its line feed, in the form of docs/audit.md. After an error they are sent
	// again. Calls do not overlap.
	Send(ctx context.Context, lines [][]byte) error
	// Close releases what Send opened; Send may be called again.
	Close()
}
