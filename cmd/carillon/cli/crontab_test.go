package cli

import (
	"os/exec"
	"strings"
	"testing"
	"time"
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

// CRON_TZ is the time zone of the lines that follow, wherever TZ is; without it, TZ is.
func TestCrontabZones(t *testing.T) {
	list, wrong, _ := readCrontab("CRON_TZ=Asia/Tokyo\nTZ=:Europe/Berlin\n1 * * * * a\nCRON_TZ=\n2 * * * * b\nTZ=\n3 * * * * c\nCRON_TZ=Nowhere/There\n4 * * * * d", "exec", false)
	if len(list) != 4 || len(wrong) != 1 || !strings.Contains(wrong[0], "the lines that follow keep the time zone before it") {
		t.Fatalf("%+v, %q", list, wrong)
	}
	for i, want := range []string{"Asia/Tokyo", "Europe/Berlin", "", ""} {
		if list[i].Zone != want {
			t.Errorf("%s has the zone %q, want %q", list[i].Key, list[i].Zone, want)
		}
	}
}

// What the crons of Debian, Red Hat, SUSE, FreeBSD and OpenBSD accept becomes a job that runs at the same times, or is
// reported with what to do.
func TestCrontabLines(t *testing.T) {
	const as = "as "
	for _, c := range []struct{ line, want string }{ // a schedule and a script, or a part of the report
		{"17 *\t* * *\tcd / && run-parts /etc/cron.hourly", as + "17 * * * *: cd / && run-parts /etc/cron.hourly"},
		{"5 4 * * sun,3 a", as + "5 4 * * sun,3: a"},
		{"0-59/10 8-18 * jan-mar,dec 1-5 a", as + "0-59/10 8-18 * jan-mar,dec 1-5: a"},
		{"0 0 1,15 * 5 a", as + "0 0 1,15 * 5: a"},
		{"0 0 * * */2 a", as + "0 0 * * */2: a"},
		{"0 0 */2 * 1 a", "days that match both day fields"},
		{"0 0 1 * */2 a", "days that match both day fields"},
		{"0 0 ? * 1 a", "has a ?"},
		{"~ 3 * * * a", as + "H 3 * * *: a"},
		{"0~30 3 * * * a", as + "H(0-30) 3 * * *: a"},
		{"5~ 3 * * * a", "minute at 1"},
		{"@every_minute a", as + "* * * * *: a"},
		{"@every_second a", as + "@every 1s: a"},
		{"@90 a", as + "@every 90s: a"},
		{"@midnight a", as + "@midnight: a"},
		{"@reboot a", "a unit of systemd"},
		{"@fortnightly a", "unknown macro"},
		{"-*/15 * * * * a", as + "*/15 * * * *: a"},
		{"* * * * * -n -q a -n", as + "* * * * *: a -n"},
		{"* * * * * root\ta", "add --system"},
		{"* * * * * rootless a", as + "* * * * *: rootless a"},
		{"* * * *", "no command after 5 fields"},
		{"* * * * *", "no command after 5 fields"},
		{"@daily", "no command after 1 fields"},
		{"1 5 cron.daily nice run-parts /etc/cron.daily", "day-of-month at 4"},
		{"0 24 * * * a", "hour at 2: 24 is not within 0-23"},
		{"PATH", "no command after 5 fields"},
		{"LD_PRELOAD=x", "env.LD_PRELOAD: is reserved"},
		{"RANDOM_DELAY=soon", "want minutes"},
		{"RANDOM_DELAY=-1", "want minutes"},
	} {
		list, wrong, _ := readCrontab(c.line, "exec", false)
		got := strings.Join(wrong, "; ")
		for _, e := range list {
			got += as + e.Schedule + ": " + e.Exec.Script
		}
		if strings.HasPrefix(c.want, as) && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%q: %s, want %s", c.line, got, c.want)
		}
	}
	list, wrong, _ := readCrontab("17 *\t* * *\troot\tcd / && a\n* * * * * root:wheel b\n* * * * * www-data\n", "exec", true)
	if len(list) != 1 || list[0].Exec.User != "root" || list[0].Exec.Script != "cd / && a" || len(wrong) != 2 ||
		!strings.Contains(wrong[0], "want a name without group") || !strings.Contains(wrong[1], "no command after 6 fields") {
		t.Errorf("%+v, %q", list, wrong)
	}
}

// Assignments that are for cron itself become settings or warnings, and values are as cron reads them.
func TestCrontabAssignments(t *testing.T) {
	list, wrong, warnings := readCrontab("\uFEFFSHELL=/bin/bash\r\nCONTENT_TYPE=text/plain\r\nSTART_HOURS_RANGE=3-22\r\nPATH=$PATH:/opt\r\n\"Q\" = \"a b\"\r\nRANDOM_DELAY=45\r\n0 1 * * * a\r\nRANDOM_DELAY=0\r\n0 2 * * * b\r\n", "exec", false)
	if len(list) != 2 || len(wrong) != 0 || len(warnings) != 4 {
		t.Fatalf("%+v, %q, %q", list, wrong, warnings)
	}
	for i, want := range []string{"1: warning: SHELL is ignored: start the worker with --exec-shell /bin/bash", "2: warning: CONTENT_TYPE is ignored", "3: warning: START_HOURS_RANGE is ignored", "4: warning: PATH has a $"} {
		if !strings.HasPrefix(warnings[i], want) {
			t.Errorf("%q, want %q", warnings[i], want)
		}
	}
	if env := list[0].Exec.Env; len(env) != 2 || env["PATH"] != "$PATH:/opt" || env["Q"] != "a b" || list[0].Jitter != "45m" || list[1].Jitter != "" || list[0].Exec.Script != "a" {
		t.Errorf("%+v", list)
	}
}

// Each line has a key of its own, made of what its command does.
func TestCrontabKeys(t *testing.T) {
	taken := map[string]bool{}
	for _, c := range []struct{ command, want string }{
		{"/x", "exec.x"}, {"/x", "exec.x-2"}, {"/x 2", "exec.x-2-2"}, {"/x", "exec.x-3"}, {"/x 2", "exec.x-2-3"},
		{"cd / && run-parts --report /etc/cron.hourly", "exec.run-parts-cron.hourly"},
		{"test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }", "exec.run-parts-cron.daily"},
		{"[ -x /usr/bin/y ] && /usr/bin/y.sh --all >/dev/null", "exec.y"},
		{`cd "/srv/my app" && A=1 ./poll`, "exec.poll"},
		{"a|b", "exec.a"}, {"[ -e /z ]", "exec.z"}, {"é", "exec"}, {"cd /srv &&", "exec.cd-srv"},
	} {
		if got := keyOf("exec", c.command, taken); got != c.want {
			t.Errorf("%s has the key %s, want %s", c.command, got, c.want)
		}
	}
}

// Jobs without a zone run in UTC: a machine in another zone has had them at other times.
func TestCrontabZoneWarning(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	london, err := time.LoadLocation("Europe/London") // UTC in winter only
	if err != nil {
		t.Fatal(err)
	}
	winter := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	list, _, _ := readCrontab("1 * * * * first\nTZ=Asia/Tokyo\n2 * * * * second", "exec", false)
	for _, c := range []struct {
		list []entry
		here *time.Location
		name string
		want string
	}{
		{list, time.UTC, "", ""}, {list[1:], berlin, "", ""}, {list, london, "", "zone is GMT"},
		{list, berlin, "", "jobs without a time zone: 1; they run in UTC, and this machine's zone is CET: set TZ in the crontab before their lines"},
		{list, berlin, "Europe/Berlin", "zone is Europe/Berlin"},
	} {
		if got := zoneWarning(c.list, c.here, c.name, winter); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.here, got, c.want)
		}
	}
}
