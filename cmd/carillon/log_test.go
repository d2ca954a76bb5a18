package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a client sends cannot forge a line, whatever the form.
func TestLogLinesCannotBeForged(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		const forged = "a\n{\"level\":\"INFO\",\"msg\":\"all is well\"}\r\ntime=now level=INFO msg=\"all is well\" %s%d\x1b[2J\u2028"
		newLogger(&config{LogLevel: "info", LogJSON: form}, file).Warn("request failed", "path", forged, "err", errors.New(forged))
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		line := string(raw)
		if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\r\x1b") || !strings.Contains(line, "%s%d") || strings.Contains(line, "MISSING") {
			t.Errorf("%s: %q", form, line)
		}
	}
}
