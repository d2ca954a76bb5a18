package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Mistakes in audit.export name the sink and what to do, and no secret.
func TestAuditSinks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                "",
		"a=/var/a.jsonl,b=https://h/?x=1": "",
		"/var/a.jsonl":                    "want NAME=ADDRESS",
		"a=/x,a=/y":                       "two sinks with the name a",
		"a=x.jsonl":                       "sink a: invalid address",
		"a=https://u:hidden@h/":           "without a user",
		"a=/x,b=ftp":                      "sink b",
	} {
		c := new(config)
		c.Audit.Export, c.Audit.SecretFile = text, file
		list, err := c.auditSinks()
		if want == "" && (err != nil || len(list) != len(commas(text))) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) || err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %d sinks, %v; want %q", text, len(list), err, want)
		}
	}
}
