package main

import (
	"os"
	"strings"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/auditsink"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// auditSinks are where the audit is exported to as it grows.
func (c *config) auditSinks() (list []embed.AuditSink, err error) {
	in := auditsink.Config{CA: c.Audit.CA}
	if in.Host, err = os.Hostname(); err != nil {
		in.Host = c.Node
	}
	if c.Audit.SecretFile != "" {
		secret, err := secretIn(c.Audit.SecretFile)
		if err != nil {
			return nil, usage("audit.secret-file: %w", err)
		}
		in.Secret = []byte(secret)
	}
	names := map[string]bool{}
	for _, one := range commas(c.Audit.Export) {
		name, address, ok := strings.Cut(one, "=")
		if !ok || name == "" || address == "" {
			return nil, usage("invalid audit.export: want NAME=ADDRESS, such as archive=/var/log/carillon/audit.jsonl")
		}
		sink, err := auditsink.Parse(name, address, in)
		if err != nil {
			return nil, usage("audit.export: %w", err)
		}
		if names[name] {
			return nil, usage("audit.export has two sinks with the name %s: name each differently", name)
		}
		names[name] = true
		list = append(list, sink)
	}
	if len(list) > kernel.MaxAuditSinks {
		return nil, usage("audit.export has %d sinks, at most %d are allowed", len(list), kernel.MaxAuditSinks)
	}
	return list, nil
}
