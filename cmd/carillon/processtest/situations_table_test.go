//go:build linux

package processtest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

const (
	// letsGo is how long a node may go on leading in a situation: its lease, and what a busy machine adds.
	letsGo = 30 * time.Second
	// answers is how long a request for rows may take, whatever the store does.
	answers = 10 * time.Second
	// stops is how long a stop may take: docs/install.md.
	stops = 28 * time.Second
)

// seen is what a node says of itself, and what is said of it.
type seen struct {
	live, ready, leads int // status of the probes
	read, write, page  int // of a request for rows, one that changes some, and the overview
	alerts             []string
	log                string // the first line about it, or the last one of a node that ended
	code               int    // of a node that ended
}

// played is one situation on one store.
type played struct {
	situation, store  string
	running, starting *seen // nil = it was not played
	stopped           time.Duration
}

// Each situation of a store is played on a node that runs, and on one that starts in it. Where nothing starts, the node
// ceases to lead with its lease, each probe, metric and alert says so, every request is answered in time, a stop ends in
// time, and all goes on by itself when the situation is over.
func TestSituationsOfTheStore(t *testing.T) {
	if !tests.Rough() {
		t.Skip("it takes half an hour: just situations")
	}
	if os.Geteuid() != 0 {
		tests.Missing(t, "root: only root may mount a disk that can be full")
	}
	var all []played
	for _, k := range situations {
		for _, store := range k.stores {
			t.Run(strings.ReplaceAll(k.name, " ", "_")+"/"+strings.ReplaceAll(store, " ", "_"), func(t *testing.T) {
				p := k.play(newScene(t, store, &k))
				all = append(all, p)
				t.Log("\n" + tables([]played{p})) // so that they are there if a later situation hangs
			})
		}
	}
	t.Log("\n" + tables(all))
}

func (k *situation) play(s *scene) (p played) {
	t, n := s.t, s.node
	p.situation, p.store = k.name, s.store
	s.whole()
	for range 5 { // so that what a database loses is younger than the jobs
		n.works(t)
	}

	if k.running != 0 {
		before, from := s.scrape(), len(n.process.out.String())
		k.begin(s)
		p.running = k.look(s, k.running, before, from)
		k.over(s)
		if k.running == ends {
			n.begin(t)
		}
		s.whole()
		n.works(t)
		if k.running != ends {
			k.begin(s)
			if k.running == away || k.running == cutOff {
				n.await(t, "/leaderz", http.StatusServiceUnavailable)
			}
			p.stopped = n.stops(t)
		}
	}
	before := s.scrape()
	switch {
	case k.running == 0 || k.running == ends:
		n.stops(t)
		k.begin(s)
		if n.process.over() {
			n.begin(t)
		}
	default:
		n.begin(t, k.less...)
	}
	p.starting = k.look(s, k.starting, before, 0)
	if k.less != nil {
		n.stops(t)
		n.begin(t)
	}
	if k.running == 0 {
		n.stops(t)
	}
	k.over(s)
	if n.process.over() {
		n.begin(t)
	}
	n.await(t, "/readyz", http.StatusOK)
	n.works(t)
	return p
}

// whole waits until all nodes are ready, the one that is looked at leads, and there are jobs.
func (s *scene) whole() {
	s.t.Helper()
	for _, n := range s.cluster {
		n.await(s.t, "/readyz", http.StatusOK)
	}
	s.lead()
	await(s.t, "jobs are there", func() bool {
		for _, body := range []string{`{"key":"away.ask","kind":"triggered","app":"away","handler":"away.any"}`,
			`{"key":"away.tick","kind":"recurring","app":"away","handler":"away.any","schedule":"@every 1s"}`} {
			if status, _ := s.node.ask(http.MethodPost, "/api/v1/jobs", body, answers); status != http.StatusCreated && status != http.StatusConflict {
				return false
			}
		}
		return true
	})
}

func (k *situation) over(s *scene) {
	if k.end != nil {
		k.end(s)
	}
}

// stops ends a node, in time.
func (n *seat) stops(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	n.process.signal(t, syscall.SIGTERM)
	n.process.ends(t)
	took := time.Since(began)
	if took > stops {
		t.Errorf("a stop takes %v, want at most %v", took, stops)
	}
	return took
}

// look waits until a node has noticed, and looks at all it says.
func (k *situation) look(s *scene, want outcome, before scrapes, from int) *seen {
	t, n := s.t, s.node
	t.Helper()
	began := time.Now()
	switch want {
	case ends:
		return k.ended(s, before)
	case goesOn, refuses:
		s.lead()
		n.await(t, "/readyz", http.StatusOK)
		n.await(t, "/api/v1/jobs/away.ask", http.StatusOK) // connections that were cut are known to be
	default:
		n.await(t, "/livez", http.StatusOK)
		n.await(t, "/leaderz", http.StatusServiceUnavailable)
		if took := time.Since(began); took > letsGo {
			t.Errorf("it leads for %v, want at most %v", took, letsGo)
		}
	}
	if want == cutOff {
		await(t, "another node leads", func() bool {
			status, _ := s.cluster[1].ask(http.MethodGet, "/leaderz", "", answers)
			return status == http.StatusOK
		})
	}
	if want == refuses {
		before = s.scrape() // a node that started counts from zero
	}
	o := n.says(t, s.body)
	if want == refuses {
		n.refuses(s.body, o)
	}
	if k.line != "" {
		await(t, "the log has a line with "+k.line, func() bool { return complaint(n.process.out.String()[from:], k.line) != "" })
	}
	o.alerts = ringing(t, before, s.scrape())
	o.log = complaint(n.process.out.String()[from:], k.line)
	k.judge(t, want, o)
	return o
}

// ended waits for the end of a node.
func (k *situation) ended(s *scene, before scrapes) *seen {
	s.t.Helper()
	await(s.t, "the node ends", s.node.process.over)
	o := &seen{code: s.node.process.code()}
	lines := strings.Split(strings.TrimSpace(s.node.process.out.String()), "\n")
	o.log = lines[len(lines)-1]
	if len(s.cluster) > 1 {
		await(s.t, "another node leads", func() bool {
			return slices.ContainsFunc(s.cluster[1:], func(n *seat) bool {
				status, _ := n.ask(http.MethodGet, "/leaderz", "", answers)
				return status == http.StatusOK
			})
		})
	}
	o.alerts = ringing(s.t, before, s.scrape())
	k.judgeEnd(s.t, o, len(s.cluster) == 1)
	return o
}

// judgeEnd compares what a node that has ended says with what becomes of it. alone: there is no other node that leads.
func (k *situation) judgeEnd(t *testing.T, o *seen, alone bool) {
	t.Helper()
	if o.code != k.code {
		t.Errorf("it ends with %d, want %d", o.code, k.code)
	}
	if o.log == "" {
		t.Error("it ends without a line that says why")
	}
	o.rightAlerts(t, ends, alone)
}

// says asks a node for all it answers.
func (n *seat) says(t *testing.T, body string) *seen {
	t.Helper()
	o := new(seen)
	for _, a := range []struct {
		status       *int
		method, path string
		within       time.Duration
	}{
		{&o.live, http.MethodGet, "/livez", answers}, {&o.ready, http.MethodGet, "/readyz", answers}, {&o.leads, http.MethodGet, "/leaderz", answers},
		{&o.read, http.MethodGet, "/api/v1/jobs/away.ask", answers}, {&o.page, http.MethodGet, "/", answers},
		{&o.write, http.MethodPost, "/api/v1/jobs/away.ask/trigger", 40 * time.Second},
	} {
		if *a.status, _ = n.ask(a.method, a.path, body, a.within); *a.status == 0 {
			t.Errorf("%s %s is not answered within %v", a.method, a.path, a.within)
		}
	}
	return o
}

// refuses repeats a request for a run until it is refused. A node at its memory limit accepts few: what a garbage
// collection found in use is some hundred kilobytes more than its rows if it came during a request.
func (n *seat) refuses(body string, o *seen) {
	const mostAccepted = 20 // 4 MB of the 96 that the rows may take
	for range mostAccepted {
		if o.write == http.StatusTooManyRequests {
			return
		}
		o.write, _ = n.ask(http.MethodPost, "/api/v1/jobs/away.ask/trigger", body, 40*time.Second)
	}
}

// judge compares what a node says with what becomes of it.
func (k *situation) judge(t *testing.T, want outcome, o *seen) {
	t.Helper()
	leads := want == goesOn || want == refuses
	o.rightAlerts(t, want, true)
	switch {
	case o.live != http.StatusOK:
		t.Errorf("/livez is %d", o.live)
	case leads && (o.ready != http.StatusOK || o.leads != http.StatusOK || o.read != http.StatusOK || o.page != http.StatusOK):
		t.Errorf("it leads, and answers otherwise: %+v", o)
	case want == goesOn && o.write/100 != 2, want == refuses && o.write != http.StatusTooManyRequests:
		t.Errorf("a request for a run is answered with %d", o.write)
	case !leads && (o.ready != http.StatusServiceUnavailable || o.write != http.StatusServiceUnavailable && o.write != http.StatusGatewayTimeout):
		t.Errorf("nothing starts, and the node answers otherwise: %+v", o)
	case !leads && o.log == "":
		t.Error("nothing starts, and the log has no line about it")
	}
}

func (o *seen) rightAlerts(t *testing.T, want outcome, alone bool) {
	t.Helper()
	if wrong := want.wrongAlerts(alone, o.alerts); len(wrong) > 0 {
		t.Errorf("%s; all that ring: %q", strings.Join(wrong, ", "), o.alerts)
	}
}

var (
	complains = regexp.MustCompile(`level=(WARN|ERROR) msg=("(?:[^"\\]|\\.)*"|\S+)`)
	reason    = regexp.MustCompile(` (?:err|error|cause)=("(?:[^"\\]|\\.)*"|\S+)`)
)

// noComplaints are about requests of the test, and about its databases, which do not write to the disk.
var noComplaints = regexp.MustCompile(`request=|msg="page failed|does not keep all it acknowledges`)

// complaint is the message and the cause of the first ERROR with a text, or else of the first WARN.
func complaint(log, with string) (warning string) {
	for line := range strings.Lines(log) {
		found := complains.FindStringSubmatch(line)
		if found == nil || noComplaints.MatchString(line) || !strings.Contains(line, with) {
			continue
		}
		text := strings.Trim(found[2], `"`)
		if why := reason.FindStringSubmatch(line); why != nil {
			text += ": " + strings.Trim(why[1], `"`)
		}
		if found[1] == "ERROR" {
			return text
		}
		warning = cmp.Or(warning, text)
	}
	return warning
}

// lead makes the node that is looked at the leader.
func (s *scene) lead() {
	s.t.Helper()
	await(s.t, "n1 leads", func() bool {
		if s.node.process.over() {
			s.t.Fatalf("n1 ended with %v:\n%s", s.node.process.err, s.node.process.out.tail(4<<10))
		}
		if status, _ := s.node.ask(http.MethodGet, "/leaderz", "", answers); status == http.StatusOK {
			return true
		}
		if s.store != onRaft && len(s.cluster) > 1 { // the standby leads only while the other is away
			other := s.cluster[1]
			other.stops(s.t)
			s.node.await(s.t, "/leaderz", http.StatusOK)
			other.begin(s.t)
			other.await(s.t, "/readyz", http.StatusOK)
			return true
		}
		s.node.ask(http.MethodPost, "/api/v1/cluster/transfer", `{"to":"n1"}`, answers)
		return false
	})
}

// ask makes a request; status 0 = there was no answer in time.
func (n *seat) ask(method, path, body string, within time.Duration) (status int, answer string) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.http+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer a.Body.Close()
	raw, _ := io.ReadAll(a.Body)
	return a.StatusCode, string(raw)
}

func (n *seat) await(t *testing.T, path string, want int) {
	t.Helper()
	await(t, fmt.Sprintf("%s of %s is %d", path, n.name, want), func() bool {
		if n.process.over() {
			t.Fatalf("%s ended with %v:\n%s", n.name, n.process.err, n.process.out.tail(4<<10))
		}
		status, _ := n.ask(http.MethodGet, path, "", answers)
		return status == want
	})
}

// works waits until a run is accepted.
func (n *seat) works(t *testing.T) {
	t.Helper()
	await(t, "a run is accepted", func() bool {
		if n.process.over() {
			t.Fatalf("%s ended with %v:\n%s", n.name, n.process.err, n.process.out.tail(4<<10))
		}
		status, _ := n.ask(http.MethodPost, "/api/v1/jobs/away.ask/trigger", "{}", 40*time.Second)
		return status/100 == 2
	})
}

// tables are what was played, in the form of docs/when-the-store-is-away.md.
func tables(all []played) string {
	out := new(strings.Builder)
	for _, head := range []string{"running", "starting"} {
		out.WriteString("\n| situation | store | `/readyz`, `/leaderz` | GET, page | POST | alerts | log |\n|---|---|---|---|---|---|---|\n")
		for _, p := range all {
			o := map[string]*seen{"running": p.running, "starting": p.starting}[head]
			if o != nil {
				fmt.Fprintf(out, "| %s | %s | %s |\n", p.situation, p.store, o)
			}
		}
	}
	for _, p := range all {
		if p.stopped > 0 {
			fmt.Fprintf(out, "\nstop: %s, %s: %.1f s", p.situation, p.store, p.stopped.Seconds())
		}
	}
	return out.String()
}

func (o *seen) String() string {
	answers := fmt.Sprintf("%d, %d | %d, %d | %d", o.ready, o.leads, o.read, o.page, o.write)
	if o.live == 0 {
		answers = fmt.Sprintf("exit code %d |  | ", o.code)
	}
	return fmt.Sprintf("%s | %s | %s", answers, strings.Join(o.alerts, ", "), short(o.log))
}

var secretsAndNumbers = regexp.MustCompile(`127\.0\.0\.1:\d+|/\S*/\d+\S*`)

// short is a line of a log without what differs each time, and not too long for a table.
func short(line string) string {
	line = secretsAndNumbers.ReplaceAllString(strings.NewReplacer("|", "\\|", "`", "'").Replace(line), "...")
	switch {
	case line == "":
		return ""
	case len(line) > longest:
		line = line[:strings.LastIndexByte(line[:longest], ' ')] + " ..."
	}
	return "`" + line + "`"
}

const longest = 110
