package cli

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/auditfile"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The audit as lines that are chained by hashes: export, head and verify.

func (a *asker) auditHead() *cobra.Command {
	return &cobra.Command{Use: "head", Short: "Show the number and hash of the last audit", Args: none,
		Long:    "Show the number and hash of the last audit. A file of exported lines that \"carillon audit verify --head\" accepts with it\nis complete up to that audit.",
		Example: lines("carillon audit head", "carillon audit verify audit.jsonl --head $(carillon audit head -o name)"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/audit/head", nil)
			if err != nil {
				return err
			}
			var h api.AuditHead
			if err := got.into(&h); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				p.facts("tenant", h.Tenant, "audits", strconv.FormatUint(h.N, 10), "hash of the last", or(h.Hash, "-"))
			}}
			if h.Hash != "" {
				v.names = []string{h.Hash}
			}
			return a.show(v)
		})}
}

func (a *asker) auditExport() *cobra.Command {
	var since uint64
	c := &cobra.Command{Use: "export", Short: "Write the audit as lines of JSON, oldest first", Args: none,
		Long: "Write the audit of the tenant to standard output, one JSON object a line, oldest first. Each line has its hash and that of\n" +
			"the line before it; \"carillon audit verify\" checks them. -o does not change the lines. The end is that of the audit when\n" +
			"the command began.",
		Example: lines("carillon audit export > audit.jsonl", "carillon audit export --since 1201 >> audit.jsonl"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if since < 1 {
				return kernel.Invalid("invalid --since 0: want the number of an audit, at least 1")
			}
			got, err := a.link.get(ctx, "/audit/head", nil)
			if err != nil {
				return err
			}
			var head api.AuditHead
			if err := got.into(&head); err != nil {
				return err
			}
			out := bufio.NewWriter(a.out)
			if err := a.exportAudit(ctx, out, head, since); err != nil {
				return err
			}
			return out.Flush()
		})}
	c.Flags().Uint64Var(&since, "since", 1, "number of the first audit to write")
	return c
}

// exportAudit writes the audits from a number to the head.
func (a *asker) exportAudit(ctx context.Context, out io.Writer, head api.AuditHead, since uint64) error {
	first := true
	for since <= head.N {
		got, err := a.link.get(ctx, "/audit", url.Values{"since": {strconv.FormatUint(since, 10)}, "limit": {"200"}})
		if err != nil {
			return err
		}
		var list struct{ Items []api.Change }
		if err := got.into(&list); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return fmt.Errorf("the server returned no audit from %d on, but its last one is %d", since, head.N)
		}
		for i := range list.Items {
			line, err := auditOf(head.Tenant, &list.Items[i])
			if err != nil {
				return err
			}
			if line.N > head.N {
				break
			}
			if first && line.N > since && since > 1 {
				a.remark("audits %d to %d are no longer stored: the lines begin with %d", since, line.N-1, line.N)
			}
			first = false
			if _, err := out.Write(auditfile.Append(nil, line)); err != nil {
				return err
			}
		}
		since = list.Items[len(list.Items)-1].N + 1
	}
	return nil
}

// auditOf is the audit that the API returned.
func auditOf(tenant string, c *api.Change) (*kernel.Audit, error) {
	line := &kernel.Audit{Tenant: jobs.Tenant(tenant), N: c.N, At: c.At, Actor: c.Actor, Reason: c.Reason, Verb: c.Verb, Target: c.Target, From: c.From,
		Before: []byte(value(c.Before)), After: []byte(value(c.After))}
	var err error
	if line.Hash, err = hex.DecodeString(c.Hash); err != nil || c.Hash == "" {
		return nil, fmt.Errorf("the server returned audit %d with the hash %.80q: want hexadecimal digits: is its version older?", c.N, c.Hash)
	}
	if line.Prev, err = hex.DecodeString(c.Prev); err != nil {
		return nil, fmt.Errorf("the server returned audit %d with the previous hash %.80q: want hexadecimal digits", c.N, c.Prev)
	}
	return line, nil
}

func (a *asker) auditVerify() *cobra.Command {
	var heads []string
	var syslog bool
	c := &cobra.Command{Use: "verify <file>...", Short: "Verify exported lines of the audit, offline", Args: counted("at least one file, oldest first, or - for standard input", 1, 1<<30),
		Long: "Verify the lines of one or several files, oldest first, without a server. The chain of each tenant is checked, and the first\n" +
			"line that was changed, removed, inserted or reordered is named. Lines that a server delivered twice are accepted,\n" +
			"and gaps that a later audit records: what a sink did not receive before it was purged.\n\n" +
			"Lines that were removed at the end leave an unbroken chain: --head, with the hash that \"carillon audit head\" printed, proves\n" +
			"that the lines go up to that audit. Without it, keep the hash that is printed, and give it the next time.",
		Example: lines("carillon audit verify audit.jsonl.1 audit.jsonl", "carillon audit verify audit.jsonl --head $(carillon audit head -o name)", "carillon audit verify --syslog /var/log/carillon-audit.log"),
		RunE: a.does(func(_ context.Context, args []string) error {
			v := auditfile.Verifier{Syslog: syslog}
			for _, h := range heads {
				if err := v.Want(h); err != nil {
					return err
				}
			}
			for _, name := range args {
				if err := a.reading(name, func(r io.Reader) error { return v.Read(name, r) }); err != nil {
					return err
				}
			}
			return a.showVerified(&v)
		})}
	c.Flags().BoolVar(&syslog, "syslog", false, "the lines are those of a syslog server: text before the first brace is ignored")
	c.Flags().StringArrayVar(&heads, "head", nil, "hash of an audit that the lines must contain; may be repeated")
	return c
}

// reading calls fn with a file, or with standard input for -.
func (a *asker) reading(name string, fn func(io.Reader) error) error {
	if name == "-" {
		return fn(a.in)
	}
	f, err := os.Open(name)
	if err != nil {
		return kernel.Invalid("%v", err)
	}
	defer f.Close()
	return fn(f)
}

// verified is a chain in the output of verify.
type verified struct {
	Tenant  jobs.Tenant `json:"tenant"`
	First   uint64      `json:"first"`
	Last    uint64      `json:"last"`
	Hash    string      `json:"hash"`
	Repeats int         `json:"repeats"`
	Gaps    int         `json:"gaps"`
}

func (a *asker) showVerified(v *auditfile.Verifier) error {
	chains, heads, err := v.Done()
	if err != nil {
		return err
	}
	if len(chains) == 0 {
		return kernel.Invalid("the files have no lines")
	}
	list := make([]verified, len(chains))
	for i, c := range chains {
		list[i] = verified{c.Tenant, c.First, c.Last, c.Hash, c.Repeats, len(c.Gaps)}
	}
	raw, err := json.Marshal(map[string]any{"chains": list})
	if err != nil {
		return err
	}
	return a.show(view{raw: raw, text: func(p *page) {
		for _, c := range list {
			p.line("tenant %s: audits %d to %d are unchanged, %d lines repeated; hash of the last %s", c.Tenant, c.First, c.Last, c.Repeats, c.Hash)
		}
		for _, c := range chains {
			for _, g := range c.Gaps {
				p.line("tenant %s: audits %d to %d are missing: sink %s did not receive them before they were purged, as a later audit records", c.Tenant, g.From, g.To, g.Sink)
			}
		}
		for _, h := range heads {
			p.line("head %s is audit %d of tenant %s", h.Hash, h.N, h.Tenant)
		}
	}})
}
