package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// The first token. A server that authenticates needs one identity to begin with: at its first start it grants a token
// for an admin and writes it to a file that only its own user may read. The text is never printed; a user who can read
// that file can read the whole data directory, too. Workers get no token by default: the admin decides which app a
// worker's token is for.

const adminFile = "admin.token"

// admit authenticates a connection to the bus by its token.
func (p *process) admit(ctx context.Context, token string) (bus.Principal, string, error) {
	s := p.scheduler.Load()
	if s == nil {
		return bus.Principal{}, "", kernel.Refuse(jobs.Unavailable, "the store is not open yet")
	}
	return s.Ops().Admit(ctx, token)
}

// denied notes a connection to the bus that was refused for the audit.
func (p *process) denied(from string, err error) {
	if s := p.scheduler.Load(); s != nil {
		s.Ops().FailedSignIn("bus", from, err)
	}
}

// admitPeer authenticates a token of another process with the same database.
func (p *process) admitPeer(ctx context.Context, token string) error {
	s := p.scheduler.Load()
	if s == nil {
		return kernel.Refuse(jobs.Unavailable, "the store is not open yet")
	}
	return s.AdmitPeer(ctx, token)
}

// firstToken grants an admin's token if the server authenticates and has no admin yet. The file is written before the
// token is granted: after a crash in between, the next start completes it.
//
// With admin-token-file, the text is the operator's, and nothing is written.
func (p *process) firstToken(ctx context.Context, s *embed.Scheduler) error {
	if !p.cfg.authenticates() {
		return nil
	}
	who := ops.Who{Actor: "node:" + p.cfg.Node, Reason: "first start", Role: ops.Admin}
	if p.newAdmin {
		who.Reason = "carillon server --new-admin-token"
		path, err := p.grant(ctx, s.Ops(), who, "admin-*.token")
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "  a new admin token is in %s; revoke those that you have lost\n", path)
		return nil
	}
	all, err := s.Ops().Tokens(ctx, who)
	if err != nil {
		return fmt.Errorf("first token: %w", err)
	}
	for _, t := range all {
		if t.Role == kernel.RoleAdmin {
			return nil
		}
	}
	if p.cfg.Admin != "" {
		text, err := p.cfg.adminToken()
		if err == nil {
			err = adopt(ctx, s.Ops(), who, text)
		}
		if err != nil {
			return fmt.Errorf("grant the token in %s: %w", p.cfg.Admin, err)
		}
		fmt.Fprintf(p.out, "  first token: the admin's in %s\n", p.cfg.Admin)
		return nil
	}
	admin, err := p.grant(ctx, s.Ops(), who, adminFile)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "  first token: an admin's, in %s; for workers: carillon tokens create NAME --role worker --app APP\n", admin)
	return nil
}

// grant writes an admin's token to a file of the data directory and grants it. A * in the file's name is its ID.
func (p *process) grant(ctx context.Context, o *ops.Ops, who ops.Who, file string) (path string, err error) {
	text := ops.TokenText(jobs.DefaultTenant)
	id := strings.Split(text, "_")[2]
	path = filepath.Join(p.cfg.Data, strings.ReplaceAll(file, "*", id))
	if text, err = keepSecret(path, text); err != nil {
		return "", fmt.Errorf("first token: %w", err)
	}
	if err := adopt(ctx, o, who, text); err != nil {
		return "", fmt.Errorf("grant the token in %s: %w", path, err)
	}
	return path, nil
}

// adopt grants an admin's token.
func adopt(ctx context.Context, o *ops.Ops, who ops.Who, text string) error {
	_, err := o.Adopt(ctx, who, ops.NewToken{Name: "first admin", Role: kernel.RoleAdmin}, text)
	if errors.Is(err, jobs.Conflict) { // another token has this name
		_, err = o.Adopt(ctx, who, ops.NewToken{Name: "admin " + strings.Split(text, "_")[2], Role: kernel.RoleAdmin}, text)
	}
	return err
}

// adminToken reads the text of the first admin's token.
func (c *config) adminToken() (string, error) {
	text, err := secretIn(c.Admin)
	if err == nil {
		err = ops.CheckTokenText(jobs.DefaultTenant, text)
	}
	return text, err
}

// keepSecret writes a secret to a new file that only its owner may read, and returns the secret. An existing file is
// never overwritten: then it returns that file's secret.
func keepSecret(path, secret string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return secretIn(path)
	}
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(secret + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(path)) // never a partial secret
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return secret, errors.Join(dir.Sync(), dir.Close())
}
