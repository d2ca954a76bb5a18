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
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// The first tokens. A scheduler that asks everybody who he is needs one who is known: at its first start a server
// grants a token for an admin and one for workers, and leaves them in files that only its own user may read. Their
// texts are never printed; who can read those files can read everything else in the data directory, too.

const (
	adminFile  = "admin.token"
	workerFile = "worker.token"
)

// admit says who comes to the bus with a token.
func (p *process) admit(ctx context.Context, token string) (bus.Principal, string, error) {
	o := p.ops.Load()
	if o == nil {
		return bus.Principal{}, "", jobs.Refuse(jobs.Unavailable, "the store is not open yet")
	}
	return o.Admit(ctx, token)
}

// firstTokens grants what a first start needs, if tokens are asked for and there is no admin yet. The file is there
// before the token is granted, and the admin's comes last: a crash in between is made good by the next start.
func (p *process) firstTokens(ctx context.Context, s *embed.Scheduler) error {
	if !p.cfg.asks() {
		return nil
	}
	who := ops.Who{Actor: "node:" + p.cfg.Node, Reason: "first start", Role: ops.Admin}
	if p.newAdmin {
		who.Reason = "carillon server --new-admin-token"
		path, err := p.grant(ctx, s.Ops(), who, jobs.RoleAdmin, "admin-*.token")
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "  a new admin token is in %s; revoke those that you have lost\n", path)
		return nil
	}
	all, err := s.Ops().Tokens(ctx, who)
	if err != nil {
		return fmt.Errorf("first tokens: %w", err)
	}
	for _, t := range all {
		if t.Role == jobs.RoleAdmin {
			return nil
		}
	}
	worker, err := p.grant(ctx, s.Ops(), who, jobs.RoleWorker, workerFile)
	if err != nil {
		return err
	}
	admin, err := p.grant(ctx, s.Ops(), who, jobs.RoleAdmin, adminFile)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "  first tokens: an admin's in %s, one for workers in %s\n", admin, worker)
	return nil
}

// grant keeps a token in a file of the data directory and makes it hold. A * in the file's name is its ID.
func (p *process) grant(ctx context.Context, o *ops.Ops, who ops.Who, role, file string) (path string, err error) {
	text := ops.TokenText(jobs.DefaultTenant)
	id := strings.Split(text, "_")[2]
	path = filepath.Join(p.cfg.Data, strings.ReplaceAll(file, "*", id))
	if text, err = keepSecret(path, text); err != nil {
		return "", fmt.Errorf("first tokens: %w", err)
	}
	_, err = o.Adopt(ctx, who, ops.NewToken{Name: "first " + role, Role: role}, text)
	if errors.Is(err, jobs.Conflict) { // somebody calls another one so
		_, err = o.Adopt(ctx, who, ops.NewToken{Name: role + " " + id, Role: role}, text)
	}
	if err != nil {
		return "", fmt.Errorf("grant the token in %s: %w", path, err)
	}
	return path, nil
}

// keepSecret writes a new file that only its owner may read, and answers with what is in it. A file that is there
// already is never written to: then it is its content that holds.
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
		return "", errors.Join(err, os.Remove(path)) // half a secret is none
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return secret, errors.Join(dir.Sync(), dir.Close())
}
