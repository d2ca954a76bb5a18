package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// The files of migrations are numbered, and each runs once, in order. One that a release has run is never changed
// again. An interrupted file runs again from its beginning.

//go:embed migrations
var migrations embed.FS

type migration struct {
	number int
	name   string
	text   string
}

// steps are a dialect's migrations, in order.
func steps(d *dialect) ([]migration, error) {
	files, err := fs.ReadDir(migrations, d.files)
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, f := range files {
		text, err := migrations.ReadFile(path.Join(d.files, f.Name()))
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(f.Name(), "_")
		n, err := strconv.Atoi(number)
		if err != nil || n != len(all)+1 {
			return nil, fmt.Errorf("migration %s is out of order", f.Name())
		}
		all = append(all, migration{n, f.Name(), string(text)})
	}
	return all, nil
}

// migrate brings the tables to the version of this program.
func (s *Store) migrate(ctx context.Context) (err error) {
	todo, err := steps(s.dialect)
	if err != nil {
		return err
	}
	unlock, err := s.dialect.lock(ctx, s.db)
	if err != nil {
		return fmt.Errorf("wait for the lock on the tables: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if _, err := s.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS carillon_versions (version integer PRIMARY KEY)"); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}
	var done int
	if err := s.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM carillon_versions").Scan(&done); err != nil {
		return fmt.Errorf("read the version of the tables: %w", err)
	}
	if done > len(todo) {
		return fmt.Errorf("the tables have version %d, but this program knows %d: start the newer program", done, len(todo))
	}
	for _, m := range todo[done:] {
		if err := s.step(ctx, m); err != nil {
			return fmt.Errorf("change the tables (%s): %w", m.name, err)
		}
		s.logger.Info("tables changed", "database", s.dialect.name, "version", m.number)
	}
	return nil
}

func (s *Store) step(ctx context.Context, m migration) error {
	return transact(ctx, s.db, sql.LevelDefault, func(tx *sql.Tx) error {
		for statement := range strings.SplitSeq(m.text, ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, s.dialect.ask("INSERT INTO carillon_versions (version) VALUES (?)"), m.number)
		return err
	})
}
