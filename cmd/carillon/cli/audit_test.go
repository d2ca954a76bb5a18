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
