package sqlstore

import (
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// hostilely starts a store on a database whose sessions have other settings than ours, and has it commit, finish a run,
// read that back and go on after a restart.
func hostilely(t *testing.T, url, refused string) {
	t.Helper()
	c := Config{URL: url}
	s, err := Open(t.Context(), c)
	if err == nil && refused == "" {
		err = s.Close()
	}
	if refused != "" {
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("opened, with %v: want it refused: %s", err, refused)
		}
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	s = open(t, c)
	stop := leading(t, s)
	do(t, s, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
	k := create("k")
	k.Args = []byte(`{"a":"a\\b 'q' \"é\" 漢字 🔔"}`)
	do(t, s, k)
	run, err := s.Run(t.Context(), jobs.DefaultTenant, k.ID)
	if err != nil {
		t.Error(err)
		return
	}
	ended := *run
	ended.State, ended.Error = jobs.Succeeded, "漢字 🔔 \\"
	h, lead := historyOf(t, s, 0)
	lead(true)
	h.settle(1<<30, &ended)
	if err := h.settled(t.Context()); err != nil {
		t.Error(err)
		return
	}
	got, err := h.Get(t.Context(), jobs.DefaultTenant, k.ID)
	if err != nil || got == nil || string(kernel.AppendRow(nil, got)) != string(kernel.AppendRow(nil, &ended)) {
		t.Errorf("a finished run is read back as %+v, %v", got, err)
	}
	var args string
	if err := s.db.QueryRow("SELECT args FROM carillon_runs").Scan(&args); err != nil || args != string(k.Args) {
		t.Errorf("people read %s, %v", args, err)
	}
	stop()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	again := open(t, c)
	if run, err := again.Run(t.Context(), jobs.DefaultTenant, k.ID); err != nil || string(run.Args) != string(k.Args) {
		t.Errorf("after a restart: %v", err)
	}
}

// A store sets what its sessions are like, whatever the server, the database or the user has; what it cannot set is
// refused by name.
func TestHostileSettings(t *testing.T) {
	tests.Long(t)
	for _, c := range []struct{ name, setting, refused string }{
		{name: "client_encoding", setting: "latin1"}, {name: "client_encoding", setting: "sql_ascii"},
		{name: "standard_conforming_strings", setting: "off"},
		{name: "TimeZone", setting: "Asia/Tokyo"}, {name: "DateStyle", setting: "SQL, DMY"}, {name: "IntervalStyle", setting: "sql_standard"},
		{name: "default_transaction_isolation", setting: "serializable"}, {name: "default_transaction_deferrable", setting: "on"},
		{name: "statement_timeout", setting: "1"}, {name: "lock_timeout", setting: "1"},
		{name: "idle_in_transaction_session_timeout", setting: "1"}, {name: "idle_session_timeout", setting: "50"},
		{name: "bytea_output", setting: "escape"}, {name: "array_nulls", setting: "off"}, {name: "extra_float_digits", setting: "-15"},
		{name: "default_transaction_read_only", setting: "on", refused: "default_transaction_read_only of this PostgreSQL is on: want off"},
	} {
		t.Run("PostgreSQL "+c.name+" "+c.setting, func(t *testing.T) {
			raw := sqltest.Postgres.New(t)
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			database := strings.TrimPrefix(u.Path, "/")
			admin := sqltest.Postgres.Open(t, strings.Replace(raw, "/"+database, "/postgres", 1))
			if _, err := admin.Exec("ALTER DATABASE " + database + " SET " + c.name + " = '" + c.setting + "'"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if _, err := admin.Exec("ALTER DATABASE " + database + " RESET " + c.name); err != nil {
					t.Error(err)
				}
			})
			hostilely(t, raw, c.refused)
		})
	}
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		t.Run("PostgreSQL database in "+encoding, func(t *testing.T) {
			raw := sqltest.Postgres.New(t)
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			name := "hostile_" + strings.ToLower(encoding)
			admin := sqltest.Postgres.Open(t, raw)
			if _, err := admin.Exec("CREATE DATABASE " + name + " ENCODING '" + encoding + "' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"); err != nil {
				t.Fatal(err)
			}
			u.Path = "/" + name
			hostilely(t, u.String(), "server_encoding of this PostgreSQL is "+encoding+": want UTF8: create the database with ENCODING 'UTF8'")
			if _, err := admin.Exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostileSettingsOfMariaDB is TestHostileSettings there. A setting is the server's: it holds for all new sessions.
func TestHostileSettingsOfMariaDB(t *testing.T) {
	for _, c := range []struct{ name, setting string }{
		{"sql_mode", "''"}, {"sql_mode", "'NO_BACKSLASH_ESCAPES'"}, {"sql_mode", "'ORACLE'"}, {"sql_mode", "'ANSI'"}, {"sql_mode", "'TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH'"},
		{"autocommit", "0"}, {"completion_type", "'CHAIN'"}, {"completion_type", "'RELEASE'"},
		{"time_zone", "'+09:00'"}, {"tx_isolation", "'READ-UNCOMMITTED'"}, {"tx_isolation", "'SERIALIZABLE'"}, {"tx_read_only", "1"},
		{"character_set_server", "'gbk'"}, {"character_set_client", "'gbk'"}, {"collation_connection", "'latin1_swedish_ci'"}, {"character_set_results", "'latin1'"},
		{"init_connect", "'SET NAMES gbk'"}, {"default_storage_engine", "MyISAM"},
		{"sql_safe_updates", "1"}, {"sql_select_limit", "1"}, {"max_statement_time", "0.001"}, {"unique_checks", "0"}, {"sql_auto_is_null", "1"},
	} {
		t.Run(c.name+" "+c.setting, func(t *testing.T) {
			raw := sqltest.MariaDB.New(t)
			db := sqltest.MariaDB.Open(t, raw)
			db.SetMaxOpenConns(1) // the session has what was before
			var before string
			if err := db.QueryRow("SELECT @@global." + c.name).Scan(&before); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec("SET GLOBAL " + c.name + " = " + c.setting); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				quoted := "'" + before + "'"
				if strings.Trim(before, "0123456789.") == "" && before != "" {
					quoted = before
				}
				if _, err := db.Exec("SET GLOBAL " + c.name + " = " + quoted); err != nil {
					t.Error(err)
				}
			})
			hostilely(t, raw, "")
		})
	}
	t.Run("database in latin1", func(t *testing.T) {
		raw := sqltest.MariaDB.New(t)
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		database := strings.TrimPrefix(u.Path, "/")
		db := sqltest.MariaDB.Open(t, raw)
		if _, err := db.Exec("ALTER DATABASE " + database + " CHARACTER SET latin1"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = db.Exec("ALTER DATABASE " + database + " CHARACTER SET utf8mb4") })
		hostilely(t, raw, "")
	})
}

// Each setting that a session of PostgreSQL cannot set for itself, or not through a pooler, is named.
func TestHostileSettingsAreNamed(t *testing.T) {
	fine := map[string]string{"server_encoding": "UTF8", "client_encoding": "UTF8", "standard_conforming_strings": "on", "default_transaction_read_only": "off",
		"default_transaction_isolation": "read committed", "bytea_output": "hex", "array_nulls": "on"}
	if why := postgresHostile(fine); why != "" {
		t.Error(why)
	}
	for name := range fine {
		setting := maps.Clone(fine)
		setting[name] = "odd"
		if why := postgresHostile(setting); !strings.HasPrefix(why, name+" of this PostgreSQL is odd: want "+fine[name]+": ") {
			t.Errorf("%s: %q", name, why)
		}
	}
}
