package sqlstore

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// What a database may lose is logged when a node starts, and shown on the settings page, each setting by its name.
// The servers of tests sync nothing, and a setting of a role is a setting of a node.
func TestDurability(t *testing.T) {
	started := func(url string) (said string) {
		t.Helper()
		var log bytes.Buffer
		s := open(t, Config{URL: url, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if !strings.Contains(s.Where(), s.Durability()) || !strings.Contains(log.String(), s.Durability()) {
			t.Errorf("%q is not in %q, or not in the log: %s", s.Durability(), s.Where(), log.String())
		}
		return s.Durability()
	}
	has := func(says string, names ...string) {
		t.Helper()
		for _, name := range names {
			if !strings.Contains(says, name) {
				t.Errorf("%s is not in %q", name, says)
			}
		}
	}
	pg := sqltest.Postgres.New(t)
	says := started(pg)
	has(says, "fsync is off", "full_page_writes is off")
	if strings.Contains(says, "synchronous_commit") {
		t.Errorf("synchronous_commit is on, and it returns %q", says)
	}
	u, err := url.Parse(pg)
	if err != nil {
		t.Fatal(err)
	}
	database := strings.TrimPrefix(u.Path, "/")
	if _, err := sqltest.Postgres.Open(t, pg).Exec("ALTER ROLE " + u.User.Username() + " IN DATABASE " + database + " SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	has(started(pg), "fsync is off", "full_page_writes is off", "synchronous_commit is off")

	maria := sqltest.MariaDB.New(t)
	db := sqltest.MariaDB.Open(t, maria)
	has(started(maria), "innodb_flush_log_at_trx_commit is 0", "innodb_doublewrite is off")
	set := func(name string, n int) {
		t.Helper()
		if _, err := db.Exec(fmt.Sprintf("SET GLOBAL %s = %d", name, n)); err != nil {
			t.Fatal(err)
		}
	}
	set("innodb_flush_log_at_trx_commit", 2)
	t.Cleanup(func() { set("innodb_flush_log_at_trx_commit", 0) })
	has(started(maria), "innodb_flush_log_at_trx_commit is 2")
	set("read_only", 1)
	t.Cleanup(func() { set("read_only", 0) })
	s, err := Open(t.Context(), Config{URL: maria})
	if err == nil {
		_ = s.Close()
		t.Fatal("a MariaDB that is read-only is opened")
	}
	has(err.Error(), "this MariaDB is read-only")
}

// Each setting by which a database may lose acknowledged commits is named.
func TestDurabilityIsJudged(t *testing.T) {
	for _, c := range []struct{ commit, fsync, pages, names string }{
		{"on", "on", "on", ""},
		{"remote_apply", "on", "on", ""},
		{"local", "on", "on", ""},
		{"off", "on", "on", "synchronous_commit"},
		{"on", "off", "on", "fsync"},
		{"on", "on", "off", "full_page_writes"},
	} {
		if says := postgresKeeps(c.commit, c.fsync, c.pages); !strings.Contains(says, c.names) || (says == durable) != (c.names == "") {
			t.Errorf("PostgreSQL with %+v: %q", c, says)
		}
	}
	for _, c := range []struct{ flush, doublewrite, names string }{
		{"1", "ON", ""},
		{"1", "1", ""},
		{"0", "ON", "innodb_flush_log_at_trx_commit"},
		{"2", "ON", "innodb_flush_log_at_trx_commit"},
		{"1", "OFF", "innodb_doublewrite"},
		{"1", "0", "innodb_doublewrite"},
	} {
		if says := mariadbKeeps(c.flush, c.doublewrite); !strings.Contains(says, c.names) || (says == durable) != (c.names == "") {
			t.Errorf("MariaDB with %+v: %q", c, says)
		}
	}
}
