package cli

import (
	"os/exec"
	"strings"
	"testing"
)

// The script of a line does what cron does with it: the first % ends the command, and the rest is its input.
func TestCrontabPercent(t *testing.T) {
	for line, want := range map[string]string{
		`echo a`:                       "a\n",
		`cat`:                          "",
		`cat%one`:                      "one\n",
		`cat%one%two%`:                 "one\ntwo\n",
		`cat%END%$HOME 'a' %`:          "END\n$HOME 'a' \n",
		`cat%one%%two`:                 "one\n\ntwo\n",
		`echo 100\%`:                   "100%\n",
		`cat%10\%`:                     "10%\n",
		`read a; echo "<$a>"; cat%x%y`: "<x>\ny\n",
		`cat # all of it%one`:          "one\n",
	} {
		script := scriptOf(line)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
		if err != nil || string(out) != want {
			t.Errorf("%s became %q, which prints %q, %v; want %q", line, script, out, err, want)
		}
	}
}

// A doubled backslash does not protect a %, and an empty input is none.
func TestCrontabBackslash(t *testing.T) {
	for line, want := range map[string]string{`echo a\\%b`: "{ echo a\\\\\n} <<'END'\nb\nEND\n", `echo a%`: "echo a", `echo a\`: `echo a\`, `echo \n`: `echo \n`} {
		if script := scriptOf(line); script != want {
			t.Errorf("%s became %q, want %q", line, script, want)
		}
	}
}

// Variables concern the lines that follow, and TZ is the time zone of these, and a variable of their commands.
func TestCrontabVariables(t *testing.T) {
	list, wrong, warnings := readCrontab(strings.Join([]string{
		"1 * * * * first", "A=1", "TZ='Europe/Berlin'", "HOME=relative", "2 * * * * second", `A = "two words"`, "CRON_TZ=Asia/Tokyo", "MAILFROM=x", "3 * * * * third", "TZ=Nowhere/There",
	}, "\n"), "exec", false)
	if len(list) != 3 || len(wrong) != 1 || !strings.HasPrefix(wrong[0], "10: zone") || len(warnings) != 1 || !strings.HasPrefix(warnings[0], "8: warning: MAILFROM") {
		t.Fatalf("%+v, %q, %q", list, wrong, warnings)
	}
	for i, want := range []struct{ zone, a, tz string }{{"", "", ""}, {"Europe/Berlin", "1", "Europe/Berlin"}, {"Asia/Tokyo", "two words", "Europe/Berlin"}} {
		if e := list[i]; e.Zone != want.zone || e.Exec.Env["A"] != want.a || e.Exec.Env["TZ"] != want.tz || e.Exec.Dir != "" {
			t.Errorf("line %d: %+v, want %+v", i, e, want)
		}
	}
}
