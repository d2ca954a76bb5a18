package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The audit is exported, continued and verified, and a changed line is named.
func TestAuditIsExportedAndVerified(t *testing.T) {
	t.Parallel()
	h := open(t)
	must := func(args ...string) string {
		t.Helper()
		out, errs, code := call{env: h.env()}.run(args...)
		if code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, errs)
		}
		return out
	}
	must("jobs", "edit", "shop.pack", "--retries", "4", "--reason", "<they> fail & fail")
	first := must("audit", "export")
	next := strings.Count(first, "\n") + 1
	must("jobs", "pause", "shop.pack", "--reason", "stock is counted")
	rest := must("audit", "export", "--since", strings.TrimSpace(string(rune('0'+next))))
	head := strings.TrimSpace(must("audit", "head", "-o", "name"))

	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for file, text := range map[string]string{a: first, b: rest} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	alone := call{} // without a server
	out, errs, code := alone.run("audit", "verify", a, b, "--head", head)
	if code != 0 || !strings.Contains(out, "tenant default: audits 1 to ") || !strings.Contains(out, head) {
		t.Errorf("verify: %d %s%s", code, out, errs)
	}
	if out, errs, code = alone.run("audit", "verify", a, "--head", head); code != 1 || !strings.Contains(errs, "lines are missing at the end") {
		t.Errorf("without the end: %d %s%s", code, out, errs)
	}
	if out, errs, code = alone.run("audit", "verify", b, a); code != 1 || !strings.Contains(errs, "oldest first") {
		t.Errorf("in the wrong order: %d %s%s", code, out, errs)
	}
	alone.in = strings.Replace(first+rest, "stock is counted", "stock is missing", 1)
	if out, errs, code = alone.run("audit", "verify", "-"); code != 1 || !strings.Contains(errs, "-:"+string(rune('0'+next))+": changed") {
		t.Errorf("a changed reason: %d %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"audit", "verify"}, {"audit", "verify", filepath.Join(dir, "none")}, {"audit", "verify", a, "--head", "12"}, {"audit", "export", "--since", "0"}} {
		if _, errs, code := (call{env: h.env()}).run(args...); code != 2 {
			t.Errorf("%v: exit code %d: %s", args, code, errs)
		}
	}
}

// A ledger is exported and verified without a server, and a changed one is refused.
func TestLedgerIsExportedAndVerified(t *testing.T) {
	t.Parallel()
	h := open(t)
	env := call{env: h.env()}
	if out, errs, code := env.run("jobs", "edit", "shop.close-day", "--schedule", "@every 1s"); code != 0 {
		t.Fatalf("edit: %d %s%s", code, out, errs)
	}
	until(t, "two due times are decided", func() bool {
		out, _, _ := env.run("runs", "list", "--job", "shop.close-day", "-o", "name")
		return strings.Count(out, "\n") >= 2
	})
	file, errs, code := env.run("ledger", "export", "--all", "--from", "1h")
	if code != 0 {
		t.Fatalf("export: %d %s", code, errs)
	}
	key, _, _ := env.run("ledger", "key", "-o", "name")
	key = strings.TrimSpace(key)
	alone := call{in: file} // without a server
	if out, errs, code := alone.run("ledger", "verify", "-", "--key", key); code != 0 || !strings.Contains(out, "tenant default, shop.close-day, from ") {
		t.Errorf("verify: %d %s%s\n%s", code, out, errs, file)
	}
	alone.in = strings.Replace(file, `"origin":"cron"`, `"origin":"misfire"`, 1)
	if out, errs, code := alone.run("ledger", "verify", "-", "--key", key); code != 1 || !strings.Contains(errs, "does not continue line") {
		t.Errorf("a changed ledger: %d %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"ledger", "export", "--from", "1h"}, {"ledger", "export", "shop.close-day"}, {"ledger", "export", "shop.close-day", "--all", "--from", "1h"},
		{"ledger", "export", "shop.close-day", "--from", "1h", "--to", "2h"}, {"ledger", "verify", "-"}, {"ledger", "verify", "-", "--key", "12"}} {
		if _, errs, code := env.run(args...); code != 2 {
			t.Errorf("%v: exit code %d: %s", args, code, errs)
		}
	}
	if _, errs, code := env.run("ledger", "export", "shop.pack", "--from", "1h"); code != 4 || !strings.Contains(errs, "has no due times") {
		t.Errorf("a triggered job: exit code %d: %s", code, errs)
	}
}
