package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Mistakes in how alarms are sent name their setting, and no secret.
func TestAlarmConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("hidden key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ settings, want string }{
		"none":                {"", ""},
		"e-mail":              {"smtp: {address: 'mail.example.com:587', from: c@example.com, user: u, password-file: " + file + "}", ""},
		"networks":            {"alarms: {allow: '10.0.0.0/8,127.0.0.1'}", ""},
		"a heartbeat":         {"alarms: {heartbeat-url: 'https://hc.example.com/ping/hidden'}", ""},
		"no heartbeat URL":    {"alarms: {heartbeat-url: 'hc.example.com/hidden'}", "invalid heartbeat URL"},
		"no network":          {"alarms: {allow: inner}", `invalid alarms.allow "inner"`},
		"no tenants' network": {"alarms: {tenants-allow: inner}", `invalid alarms.tenants-allow "inner"`},
		"no sender":           {"smtp: {address: 'mail.example.com:587'}", "invalid sender"},
		"no port":             {"smtp: {address: mail.example.com, from: c@example.com}", "want host:port"},
		"user, no password":   {"smtp: {address: 'm:25', from: c@example.com, user: u}", "smtp.password-file"},
		"password in clear":   {"smtp: {address: 'm:25', tls: none, from: c@example.com, user: u, password-file: " + file + "}", "without TLS"},
	} {
		cfg, err := load(t, c.settings+"\n", nil)
		if err == nil {
			_, err = cfg.alarms()
		}
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
