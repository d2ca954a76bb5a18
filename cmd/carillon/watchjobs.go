package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/cmd/carillon/cli"
	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

// Job definitions in a file, a folder or at a URL are applied like "carillon apply" whenever they differ from those
// that this process applied last. Edits by users stay until the file changes: the last write wins.

// watchJobs reads the source again and again. The rest of the process is not affected by errors.
func (p *process) watchJobs(ctx context.Context, s *embed.Scheduler) {
	episodes, applied := episode.New(p.log), ""
	defer episodes.Reset()
	var logged error
	for {
		var err error
		applied, err = p.applyJobs(ctx, s, applied)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			episodes.Began(slog.LevelWarn, err.Error(), "the watched jobs are not applied", "source", p.source(), "err", err)
		}
		if logged != nil && (err == nil || err.Error() != logged.Error()) {
			episodes.End(logged.Error(), "the watched jobs are not applied")
		}
		logged = err
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.cfg.Jobs.Every):
		}
	}
}

// source returns where the jobs come from, without secrets.
func (p *process) source() string { return shownSource(p.cfg.Jobs.From) }

// shownSource returns a path unchanged, and a URL without its user and query, which may have secrets.
func shownSource(from string) string {
	if !isURL(from) {
		return from
	}
	u, err := url.Parse(from)
	if err != nil {
		return "a URL" // the table of settings refuses such URLs
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

func isURL(from string) bool {
	return strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://")
}

// applyJobs applies the definitions at the source, unless they were applied last, and returns their fingerprint.
func (p *process) applyJobs(ctx context.Context, s *embed.Scheduler, applied string) (string, error) {
	files, err := fetchJobs(ctx, p.cfg.Jobs.From)
	if err != nil {
		return applied, err
	}
	sum := sha256.New()
	var in jobfile.Content
	for _, f := range files {
		fmt.Fprintf(sum, "%q %d ", f.name, len(f.text))
		sum.Write(f.text)
		if err := in.Add(f.name, f.text, cli.IsField); err != nil {
			return applied, err
		}
	}
	if err := jobfile.Distinct(in.Jobs); err != nil {
		return applied, err
	}
	if p.cfg.Jobs.Prune {
		if in.Bundle == "" {
			return applied, kernel.Invalid("jobs.prune needs a bundle: add a line \"bundle: NAME\" to %s", p.source())
		}
		fmt.Fprint(sum, "prune")
	}
	now := hex.EncodeToString(sum.Sum(nil))
	last, err := p.lastApplied()
	if err != nil || now == applied {
		return now, err
	}
	if now == last.Jobs {
		// The store may have changed since then: restored from an older backup, or empty.
		p.log.Info("the watched jobs are not applied: they equal those recorded in applied.json", "source", p.source(), "dir", p.cfg.Data)
		return now, nil
	}
	// A folder may be read while it is updated. Only a second read of the same content deletes what that lacks.
	declared := now + " declared"
	if applied != declared {
		if err := p.declare(ctx, s, &in); err != nil {
			return applied, err
		}
		if p.cfg.Jobs.Prune {
			return declared, nil
		}
	} else if err := p.prune(ctx, s, &in); err != nil {
		return applied, err
	}
	last.Jobs = now
	return now, p.remember(last)
}

func (p *process) declare(ctx context.Context, s *embed.Scheduler, in *jobfile.Content) error {
	wanted := make([]ops.Wanted, len(in.Jobs))
	for i, stated := range in.Jobs {
		raw, err := json.Marshal(stated.Body)
		if err != nil {
			return err
		}
		var w api.Wanted
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(&w); err != nil {
			return kernel.Invalid("%s: job %s: %v", stated.Place(""), stated.Key, strings.TrimPrefix(err.Error(), "json: "))
		}
		if wanted[i], err = w.Wanted(); err != nil {
			return kernel.Invalid("%s: job %s: %v", stated.Place("kind"), stated.Key, err)
		}
	}
	how := ops.How{Exact: p.cfg.Jobs.Exact, Bundle: in.Bundle}
	if p.cfg.Jobs.Prune {
		how.Prune = &ops.Prune{} // fields only
	}
	closed := make([]kernel.SetCalendar, len(in.Calendars))
	for i, c := range in.Calendars {
		closed[i] = kernel.SetCalendar{Name: c.Name, Description: c.Description, Zone: c.Zone, Rules: c.Rules}
	}
	// All parts are previewed before the first is applied.
	var made, edited int
	for _, dry := range []bool{true, false} {
		how.Dry = dry
		for from := 0; from < max(len(wanted), 1); from += ops.MaxWanted {
			with := closed
			if from > 0 && !dry {
				with = nil // the first part wrote them
			}
			excluded, plans, err := s.Ops().DeclareAll(ctx, p.declarer(), with, wanted[from:min(from+ops.MaxWanted, len(wanted))], how)
			if err != nil {
				return err
			}
			for _, c := range excluded {
				if !dry && c.Does != ops.DoesNothing {
					p.log.Info("a watched calendar is written", "source", p.source(), "name", c.Name)
				}
			}
			for _, plan := range plans {
				switch {
				case !dry && plan.Does == ops.DoesCreate:
					made++
				case !dry && plan.Does == ops.DoesEdit:
					edited++
				}
			}
		}
	}
	p.log.Info("the watched jobs are applied", "source", p.source(), "jobs", len(wanted), "made", made, "edited", edited)
	return nil
}

// declarer is who applies watched jobs.
func (p *process) declarer() ops.Who {
	return ops.Who{Actor: "config:" + p.cfg.Node, Reason: "stated in " + p.source(), Role: ops.Admin}
}

// prune deletes jobs and calendars of the bundle that its files no longer name. Live runs of deleted jobs finish. A
// source without jobs prunes nothing: it is more often a mistake, such as an empty mount, than an intention.
func (p *process) prune(ctx context.Context, s *embed.Scheduler, in *jobfile.Content) error {
	if len(in.Jobs) == 0 {
		p.log.Warn("the watched jobs are not pruned: the source has no jobs", "source", p.source(), "bundle", in.Bundle)
		return nil
	}
	list, _, err := s.Ops().Jobs(ctx, p.declarer(), ops.JobQuery{Bundle: in.Bundle})
	if err != nil {
		return err
	}
	calendars, err := s.Ops().Calendars(ctx, p.declarer())
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, j := range in.Jobs {
		named["job "+j.Key] = true
	}
	for _, c := range in.Calendars {
		named["calendar "+c.Name] = true
	}
	var gone ops.Prune
	for _, j := range list {
		if !named["job "+string(j.Key)] {
			gone.Jobs = append(gone.Jobs, j.Key)
		}
	}
	for _, c := range calendars {
		if c.Bundle == in.Bundle && !named["calendar "+c.Name] {
			gone.Calendars = append(gone.Calendars, c.Name)
		}
	}
	for len(gone.Jobs)+len(gone.Calendars) > 0 {
		n, m := min(len(gone.Jobs), ops.MaxWanted), min(len(gone.Calendars), ops.MaxWanted)
		if n < len(gone.Jobs) {
			m = 0 // jobs that are deleted later may use them
		}
		how := ops.How{Bundle: in.Bundle, Prune: &ops.Prune{Jobs: gone.Jobs[:n], Calendars: gone.Calendars[:m], Live: ops.FinishLiveRuns}}
		excluded, plans, err := s.Ops().DeclareAll(ctx, p.declarer(), nil, nil, how)
		if err != nil {
			return err
		}
		for _, one := range plans {
			p.log.Info("a watched job is pruned", "source", p.source(), "bundle", in.Bundle, "key", one.Job.Key, "does", one.Does, "count", one.Runs)
		}
		for _, one := range excluded {
			p.log.Info("a watched calendar is pruned", "source", p.source(), "bundle", in.Bundle, "name", one.Name, "does", one.Does)
		}
		gone.Jobs, gone.Calendars = gone.Jobs[n:], gone.Calendars[m:]
	}
	return nil
}

// checkSource refuses URLs without TLS: a network attacker could change the jobs.
func checkSource(from string) error {
	u, err := url.Parse(from)
	if err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return fmt.Errorf("%s has no TLS, so the network could change the jobs: use https", shownSource(from))
	}
	return err
}

// jobText is a file of jobs.
type jobText struct {
	name string
	text []byte
}

// fetchJobs reads a file, the files of a folder, or a URL's response.
func fetchJobs(ctx context.Context, from string) ([]jobText, error) {
	if isURL(from) {
		text, err := download(ctx, from)
		if about, ok := errors.AsType[*url.Error](err); ok {
			err = fmt.Errorf("get %s: %w", shownSource(from), about.Err) // without the URL
		}
		return []jobText{{shownSource(from), text}}, err
	}
	names, err := jobfile.Files(from)
	if err != nil {
		return nil, err
	}
	var list []jobText
	for _, name := range names {
		text, err := jobfile.Read(name, nil)
		if err != nil {
			return nil, err
		}
		list = append(list, jobText{name, text})
	}
	return list, nil
}

func download(ctx context.Context, from string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if len(via) > 3 {
			return errors.New("more than 3 redirects")
		}
		return checkSource(next.URL.String())
	}}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s responds %s", shownSource(from), answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, jobfile.MaxBytes+1))
	if err == nil && len(text) > jobfile.MaxBytes {
		err = fmt.Errorf("%s responds with more than %d MiB", shownSource(from), jobfile.MaxBytes>>20)
	}
	return text, err
}
