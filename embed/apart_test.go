package embed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// canary is in all texts of the victim.
const canary = "canary"

// prey is what an attacker of another tenant has learned: the IDs of the victim's things.
type prey struct {
	runs           []string
	token, session string
	cursor         string
}

// reply is what the attacker received for a request.
type reply struct{ request, response string }

// den is a tenant with all that it can have.
type den struct {
	o      *pollFixture
	tenant jobs.Tenant
	own    string // in names that only this tenant has
	admin  []string
	worker []string
	cookie string
	prey
}

func (d *den) send(as []string, method, path, body string) *httptest.ResponseRecorder {
	d.o.t.Helper()
	r := httptest.NewRequestWithContext(d.o.t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("If-Match", "*")
	for i := 0; i+1 < len(as); i += 2 {
		r.Header.Set(as[i], as[i+1])
	}
	w := httptest.NewRecorder()
	d.o.Handler().ServeHTTP(w, r)
	return w
}

func (d *den) must(as []string, method, path, body string) map[string]any {
	d.o.t.Helper()
	w := d.send(as, method, "/api/v1"+path, body)
	var found map[string]any
	if w.Code >= 300 || w.Body.Len() > 0 && json.Unmarshal(w.Body.Bytes(), &found) != nil {
		d.o.t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return found
}

// register makes the tenant's worker known, or keeps it so.
func (d *den) register() {
	d.o.t.Helper()
	shared := `{"key":"shared.work","kind":"triggered","settings":{"retries":0}}` // delays of retries are random
	own := fmt.Sprintf(`{"key":"%s.only","kind":"triggered","settings":{"description":%q,"tags":[%q],"retries":0}},{"key":"%s.daily","kind":"recurring","settings":{"schedule":"@every 60s"}}`, d.own, d.own, d.own, d.own)
	for _, w := range [][2]string{{"py", shared + "," + own}, {d.own, shared}} {
		d.must(d.worker, "POST", "/worker/register", fmt.Sprintf(`{"name":%q,"start":"a1","app":"shop","slots":9,"jobs":[%s]}`, w[0], w[1]))
		synctest.Wait()
	}
}

// leave ends the tenant's workers: what happens by chance to runs, such as a random delay, would differ.
func (d *den) leave() {
	for _, name := range []string{"py-a1", d.own + "-a1", canary + "-a1"} {
		d.send(d.worker, "POST", "/api/v1/worker/leave", `{"worker":"`+name+`"}`)
	}
	synctest.Wait()
}

// fill creates something of each kind; with work, it begins runs.
func (d *den) fill(work bool) {
	t := d.o.t
	t.Helper()
	d.register()
	for _, name := range []string{"shared", d.own} {
		d.must(d.admin, "PUT", "/calendars/"+name, `{"rules":["SAT"],"description":"`+d.own+`"}`)
		d.must(d.admin, "PUT", "/alarm-targets/"+name, `{"kind":"slack","url":"https://127.0.0.1/`+d.own+`"}`)
		d.must(d.admin, "PUT", "/alarm-rules/"+name, `{"kind":"failed","inRow":1,"targets":["`+name+`"]}`)
		d.must(d.admin, "POST", "/tokens", `{"name":"`+name+`","role":"viewer"}`)
		d.must(d.admin, "PATCH", "/jobs/shared.work", `{"description":"`+name+`"}`)
	}
	d.must(d.admin, "PATCH", "/settings", `{"misfireAfter":"7m"}`)
	if !work {
		d.leave()
	}
	d.must(d.admin, "POST", "/jobs/"+d.own+".daily/pause", `{"reason":"`+d.own+`"}`)
	for n := range 6 {
		run := d.must(d.admin, "POST", "/jobs/"+d.own+".only/trigger", fmt.Sprintf(`{"args":{"text":%q,"n":%d}}`, d.own, n))
		d.runs = append(d.runs, run["id"].(string))
	}
	synctest.Wait()
	var taken []any
	for got := ""; work && len(taken) < 4; {
		polled := d.must(d.worker, "POST", "/worker/poll", `{"worker":"py-a1","want":1,"waitSeconds":1,"got":"`+got+`"}`)
		taken, got = append(taken, polled["runs"].([]any)...), fmt.Sprint(polled["batch"])
		synctest.Wait()
	}
	for n, run := range taken {
		of := fmt.Sprintf(`{"worker":"py-a1","run":%q,"attempt":1`, run.(map[string]any)["run"])
		d.must(d.worker, "POST", "/worker/logs", of+`,"first":1,"lines":[{"text":"`+d.own+`"}]}`)
		d.must(d.worker, "POST", "/worker/progress", of+`,"done":1,"text":"`+d.own+`"}`)
		switch n {
		case 0:
			d.must(d.worker, "POST", "/worker/finish", of+`,"result":"`+d.own+`"}`)
		case 1:
			d.must(d.worker, "POST", "/worker/finish", of+`,"error":"`+d.own+`","noRetry":true}`)
		}
	}
	d.must(d.admin, "POST", "/runs/"+d.runs[5]+"/cancel", `{"reason":"`+d.own+`"}`)
	who := ops.Who{Tenant: d.tenant, Role: ops.Admin}
	tokens, err := d.o.Ops().Tokens(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range tokens {
		if token.Name == d.own {
			d.token = token.ID
		}
	}
	sessions, err := d.o.Ops().Sessions(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	d.session = sessions[0].ID
	d.must(d.admin, "POST", "/batches", `{"then":"shared.work","name":"monday"}`)
	d.cursor = d.must(d.admin, "GET", "/runs?limit=1", "")["next"].(string)
}

// newDen creates a tenant with an admin, a worker's token and a session.
func newDen(o *pollFixture, tenant jobs.Tenant, own string) *den {
	d := &den{o: o, tenant: tenant, own: own}
	d.admin = o.bearer(tenant, ops.NewToken{Name: "admin", Role: "admin"})
	d.worker = o.bearer(tenant, ops.NewToken{Name: "worker", Role: "worker"})
	cookie, _, err := o.Ops().SignIn(o.t.Context(), strings.TrimPrefix(d.admin[1], "Bearer "))
	if err != nil {
		o.t.Fatal(err)
	}
	d.cookie = cookie
	return d
}

// all is what shows each change in a tenant: the end of its audit, and what has no audit.
func (d *den) all() string {
	t := d.o.t
	t.Helper()
	synctest.Wait()
	var b strings.Builder
	head, err := d.o.Ops().AuditHead(t.Context(), ops.Who{Tenant: d.tenant, Role: ops.Admin})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "%d audits, %x\n", head.N, head.Hash)
	who := ops.Who{Tenant: d.tenant, Role: ops.Admin}
	for _, worker := range d.o.Ops().Workers(t.Context(), who) {
		fmt.Fprintln(&b, worker.Name, worker.Running, worker.Drained)
	}
	sessions, err := d.o.Ops().Sessions(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&b, len(sessions))
	batches, err := d.o.Ops().Batches(t.Context(), who, metastore.MaxPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range batches {
		fmt.Fprintln(&b, batch.Name, batch.Total, batch.Closed)
	}
	page, err := d.o.Ops().Runs(t.Context(), who, metastore.RunQuery{Limit: metastore.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range page.Runs {
		lines, err := d.o.Ops().Log(t.Context(), who, run.ID, metastore.LogPosition{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		now, _ := d.o.Ops().Live().Attempt(d.tenant, run.ID)
		fmt.Fprintln(&b, run.ID, run.State, run.Attempt, run.Worker, string(run.Result), string(run.Checkpoint), len(lines), now.Progress)
	}
	return b.String()
}

// alive keeps the tenant's workers and their runs.
func (d *den) alive() {
	for _, name := range []string{"py-a1", d.own + "-a1"} {
		d.send(d.worker, "POST", "/api/v1/worker/heartbeat", `{"worker":"`+name+`"}`)
	}
}

// tried are the values of parameters in queries, by name; in those that are not named here, there is nothing of a tenant.
func (p *prey) tried() map[string]string {
	return map[string]string{"job": canary + ".only", "worker": "py-a1", "parent": p.runs[0], "app": "shop", "tag": canary, "match": canary + ".*", "q": canary, "after": canary + ".a",
		"cursor": p.cursor, "before": "9", "calendars": canary, "jobId": canary + ".only", "parentJobId": canary + ".only", "executionId": p.runs[0], "execution": p.runs[0],
		"target": "job " + canary + ".only", "actor": "person:admin", "from": "2000-01-01T00:00:00Z", "active": "1", "at": "2000-01-01T00:10:00Z", "since": "1", "arg": "text=" + canary}
}

// names are what may stand in a path.
func (p *prey) names(path, name string) []string {
	switch {
	case name == "id" && strings.Contains(path, "runs/"):
		return p.runs[:3] // one has succeeded, one failed, and one is under way
	case name == "id" && strings.Contains(path, "batches/"):
		return []string{victimsBatch}
	case name == "id" && strings.Contains(path, "sessions/"):
		return []string{p.session}
	case name == "id":
		return []string{p.token}
	case name == "key", name == "jobId":
		return []string{canary + ".only", canary + ".daily", "shared.work"}
	case name == "number":
		return []string{"1", "2"}
	case strings.Contains(path, "workers/"):
		return []string{"py-a1", canary + "-a1"}
	case strings.Contains(path, "apps/"):
		return []string{"shop"}
	case strings.Contains(path, "tenants/"):
		return []string{"acme"}
	}
	return []string{canary, "shared"}
}

// paths are those that a pattern matches.
func (p *prey) paths(pattern string) []string {
	list := []string{pattern}
	for _, found := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(pattern, -1) {
		var next []string
		for _, path := range list {
			for _, name := range p.names(pattern, found[1]) {
				next = append(next, strings.Replace(path, found[0], name, 1))
			}
		}
		list = next
	}
	return list
}

// victimsBatch is a batch of the victim that is open.
var victimsBatch = kernel.BatchID("acme", "monday").String()

// bodies are sent by the attacker, by route. RUN is a run of the victim.
var bodies = map[string][]string{
	"PUT /api/v1/alarm-rules/{name}":        {`{"kind":"failed","inRow":1,"targets":["canary"]}`, `{"kind":"missed","targets":["shared"]}`},
	"PUT /api/v1/alarm-targets/{name}":      {`{"kind":"slack"}`, `{"kind":"slack","url":"https://127.0.0.1/2"}`},
	"POST /api/v1/apply":                    {`{"jobs":[{"key":"canary.only","priority":1}]}`, `{"jobs":[{"key":"canary.made","kind":"triggered","app":"shop","onSuccess":["canary.only"],"calendars":["canary"]}]}`},
	"POST /api/v1/bulk/jobs/delete":         {`{"filter":{"match":"canary.*"},"runs":"cancel"}`, `{"filter":{"app":"shop","match":"canary.o*"},"runs":"cancel","dry":true}`},
	"POST /api/v1/bulk/jobs/pause":          {`{"filter":{"match":"canary.*"}}`},
	"POST /api/v1/bulk/jobs/resume":         {`{"filter":{"match":"canary.*"}}`},
	"POST /api/v1/bulk/jobs/trigger":        {`{"filter":{"match":"canary.*"}}`},
	"POST /api/v1/bulk/runs/cancel":         {`{"filter":{"job":"canary.only"}}`, `{"filter":{"parent":"RUN"}}`},
	"POST /api/v1/bulk/runs/retry":          {`{"filter":{"job":"canary.only","state":"Terminated"}}`},
	"PUT /api/v1/calendars/{name}":          {`{"rules":["SUN"]}`},
	"POST /api/v1/cluster/transfer":         {`{}`},
	"POST /api/v1/jobs":                     {`{"key":"canary.made","kind":"triggered","app":"shop","retries":0}`, `{"key":"canary.only","kind":"triggered","app":"shop","retries":0}`},
	"PATCH /api/v1/jobs/{key}":              {`{"timeout":"5s"}`, `{"parent":"canary.only"}`, `{"after":["canary.only"]}`},
	"POST /api/v1/jobs/{key}/backfill":      {`{"from":"2000-01-01T00:00:00Z"}`},
	"POST /api/v1/jobs/{key}/check-in":      {`{}`, `{"failed":true}`},
	"POST /api/v1/batches":                  {`{"then":"canary.only"}`, `{"then":"shared.work","name":"monday"}`},
	"POST /api/v1/jobs/{key}/rollback":      {`{"revision":1}`},
	"POST /api/v1/outbox/refused/discard":   {`{"numbers":[1]}`},
	"POST /api/v1/outbox/refused/retry":     {`{"numbers":[1]}`},
	"POST /api/v1/purge":                    {`{"job":"canary.only","all":true}`, `{"all":true}`},
	"POST /api/v1/runs":                     {`{"items":[{"job":"canary.only"}]}`, `{"items":[{"job":"shared.work","parent":"RUN"}]}`, `{"items":[{"job":"shared.work","batch":"` + victimsBatch + `"}]}`},
	"POST /api/v1/seed/jobs/{jobId}":        {`{"request":[{"url":"http://example.com/"}]}`},
	"POST /api/v1/seed/jobs/{jobId}/update": {`{"request":[{"url":"http://example.com/"}]}`},
	"PATCH /api/v1/settings":                {`{"recurringDebug":true}`, `{"recurringDebug":false}`, `{"app":"shop","defaults":{"timeout":"9s"}}`},
	"POST /api/v1/tenants":                  {`{"name":"acme"}`},
	"PATCH /api/v1/tenants/{name}":          {`{"title":"x"}`},
	"POST /api/v1/tenants/{name}/tokens":    {`{"name":"new","role":"admin"}`},
	"POST /api/v1/tokens":                   {`{"name":"canary","role":"viewer"}`},
	"POST /api/v1/worker/checkpoint":        {`{"worker":"py-a1","run":"RUN","attempt":1,"data":1}`},
	"POST /api/v1/worker/finish":            {`{"worker":"py-a1","run":"RUN","attempt":1,"result":1}`},
	"POST /api/v1/worker/heartbeat":         {`{"worker":"py-a1","runs":[{"run":"RUN","attempt":1}]}`, `{"worker":"canary-a1"}`},
	"POST /api/v1/worker/leave":             {`{"worker":"canary-a1"}`},
	"POST /api/v1/worker/logs":              {`{"worker":"py-a1","run":"RUN","attempt":1,"lines":[{"text":"x"}]}`, `{"worker":"canary-a1","run":"RUN","attempt":1,"lines":[{"text":"x"}]}`},
	"POST /api/v1/worker/poll":              {`{"worker":"canary-a1","waitSeconds":1}`, `{"worker":"py-a1","waitSeconds":1,"want":9}`},
	"POST /api/v1/worker/progress":          {`{"worker":"py-a1","run":"RUN","attempt":1,"done":1}`},
	"POST /api/v1/worker/register":          {`{"name":"canary","start":"a1","app":"shop","slots":9,"jobs":[{"key":"canary.only","kind":"triggered","settings":{"retries":0}}],"runs":[{"run":"RUN","attempt":1}]}`},
}

// attempt is a request of the attacker.
type attempt struct{ method, path, body string }

// attempts are for all routes of the API, as its document names them.
func (p *prey) attempts(t *testing.T, document []byte) (list []attempt) {
	t.Helper()
	var described struct {
		Paths map[string]map[string]struct {
			Role        string                   `json:"x-role"`
			RequestBody *struct{ Required bool } `json:"requestBody"`
			Parameters  []struct {
				Name, In string
				Required bool
			}
		}
	}
	if err := json.Unmarshal(document, &described); err != nil || len(described.Paths) < 60 {
		t.Fatalf("%d paths (%v)", len(described.Paths), err)
	}
	tried := p.tried()
	for _, method := range []string{"get", "post", "patch", "put", "delete"} { // reads first: there is most to see
		for _, pattern := range slices.Sorted(maps.Keys(described.Paths)) {
			op, is := described.Paths[pattern][method]
			if !is {
				continue
			}
			route := strings.ToUpper(method) + " " + pattern
			sent := bodies[route]
			if op.RequestBody != nil && op.RequestBody.Required && len(sent) == 0 {
				t.Errorf("%s needs a body about things of another tenant", route)
			}
			if len(sent) == 0 {
				sent = []string{""}
			}
			var always url.Values = url.Values{}
			queries := []url.Values{always}
			for _, q := range op.Parameters {
				value := tried[q.Name]
				switch {
				case q.In != "query":
				case q.Required && value == "":
					t.Errorf("%s needs a value of %s that belongs to another tenant", route, q.Name)
				case q.Required:
					always.Set(q.Name, value)
				case value != "":
					queries = append(queries, url.Values{q.Name: {value}})
				}
			}
			for _, path := range p.paths(pattern) {
				for _, query := range queries {
					for _, body := range sent {
						full := url.Values{}
						maps.Copy(full, always)
						maps.Copy(full, query)
						for i, run := range p.runs {
							if i == 0 || strings.Contains(body, "RUN") {
								list = append(list, attempt{strings.ToUpper(method), strings.TrimSuffix(path+"?"+full.Encode(), "?"), strings.ReplaceAll(body, "RUN", run)})
							}
						}
					}
				}
			}
		}
	}
	return list
}

var uiRoute = regexp.MustCompile(`(?m)^\t+(?:mux\.Handle(?:Func)?\(|\{)"(GET|POST) (/[^"]*)"`)

// clicks are for all routes of the pages, as their source names them. A form has all fields.
func (p *prey) clicks(t *testing.T) (list []attempt) {
	t.Helper()
	source, err := os.ReadFile("../ui/ui.go")
	if err != nil {
		t.Fatal(err)
	}
	found := uiRoute.FindAllStringSubmatch(string(source), -1)
	if len(found) < 80 {
		t.Fatalf("%d pages", len(found))
	}
	form := url.Values{"id": p.runs, "number": {"1"}, "numbers": {"1"}, "key": {canary + ".only"}, "tenant": {"acme"}, "confirm": {canary + ".only"}, "job": {canary + ".only"}, "name": {canary}, "kind": {"slack"}, "revision": {"1"}, "to": {"1"}, "match": {canary + ".*"}}
	slices.SortStableFunc(found, func(a, b []string) int { return strings.Compare(a[1], b[1]) })
	for _, r := range found {
		if r[2] == "/logout" {
			continue
		}
		for _, path := range p.paths(strings.ReplaceAll(r[2], "{$}", "")) {
			if r[1] == "GET" {
				list = append(list, attempt{"GET", path, ""})
				if r[2] == "/events" {
					continue
				}
				for name, value := range p.tried() {
					list = append(list, attempt{"GET", path + "?" + url.Values{name: {value}}.Encode(), ""})
				}
				continue
			}
			for _, do := range []string{"cancel", "delete", "again", "save"} {
				form.Set("do", do)
				list = append(list, attempt{"POST", path, form.Encode()})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b attempt) int { return strings.Compare(a.method+a.path, b.method+b.path) })
	return list
}

// changing are texts of the attacker's own things that differ from one time to another: also times, because some waits
// are random, and the order of purges.
var changing = regexp.MustCompile(`runs of [a-z.]+|2000-01-01[T ]\d\d:\d\d(:\d\d)?(\.\d+)?( UTC|Z)?|[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{12,}|_[a-z0-9]{8}_[A-Z2-7]{26}|"(id|key|signature|next|hash|head|request)":"[^"]*"|/access/[a-z0-9]{8}/|token [a-z2-7]{8} |<code>[a-z2-7]{8}</code>|"(batch|seen)":"[^"]*"|data-key="[a-z2-7]{8}"|mono">[a-z2-7]{8}<|token [a-z2-7]{8}<|<time datetime="[^"]*" title="[^"]*" data-rel>(now|\d+ s ago)</time>|why-[a-z2-7]{8}|name="request" value="[^"]*"|[A-Za-z0-9_-]{40,}=*`)

// steady returns a response without changing. It remembers lines, since most lines of a page are those of others, too.
func steady(response string, known map[string]string) string {
	lines := strings.Split(response, "\n")
	for i, line := range lines {
		if _, is := known[line]; !is {
			known[line] = changing.ReplaceAllString(line, "ID")
		}
		lines[i] = known[line]
	}
	return strings.Join(lines, "\n")
}

// explore returns what the attacker receives, with much in the victim's tenant or with nothing, and the requests.
func explore(t *testing.T, much bool, known *prey) (replies []reply, learned *prey) {
	o := newOffice(t, embed.Config{Tokens: true})
	defer o.shut()
	began := time.Now()
	o.bearer("", ops.NewToken{Name: "root", Role: "admin"})
	evil, acme := newDen(o, "evil", "evil"), newDen(o, "acme", canary)
	if much {
		acme.fill(true)
		known = &acme.prey
	}
	time.Sleep(time.Until(began.Add(5 * time.Minute)))
	evil.fill(false)
	time.Sleep(time.Until(began.Add(10 * time.Minute))) // by then retention has measured all tenants
	if much {
		acme.register()
	}
	before := acme.all()
	kept := time.Now()
	lines := map[string]string{}
	act := func(a attempt, headers ...string) {
		time.Sleep(time.Millisecond) // below the limits of requests
		if a.method != "GET" {
			time.Sleep(100 * time.Millisecond)
		}
		if time.Since(kept) > 2*time.Second {
			kept = time.Now()
			if much {
				acme.alive()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream := strings.HasSuffix(a.path, "/events")
		if stream {
			go func() {
				time.Sleep(time.Second)
				synctest.Wait()
				if much {
					acme.must(acme.admin, "PATCH", "/jobs/canary.only", `{"retries":2}`)
				}
				time.Sleep(time.Second)
				cancel()
			}()
		}
		r := httptest.NewRequestWithContext(ctx, a.method, a.path, strings.NewReader(a.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("If-Match", "*")
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		o.Handler().ServeHTTP(w, r)
		request := fmt.Sprintf("%s %s %s", a.method, a.path, a.body)
		if stream && much {
			before = acme.all()
		}
		for _, id := range append(slices.Clone(known.runs), known.token, known.session) {
			if much && !strings.Contains(request, id) && bytes.Contains(w.Body.Bytes(), []byte(id)) {
				t.Errorf("%s: the response has the ID %s of another tenant: %.500s", request, id, w.Body)
			}
		}
		if strings.Contains(a.path, "/worker/") {
			evil.leave()
		}
		w.Header().Del("Date")
		w.Header().Del("ETag")
		w.Header().Del("X-Request-Id")
		replies = append(replies, reply{request, steady(fmt.Sprintf("%d %v %s", w.Code, w.Header(), w.Body), lines)})
		if a.method == "GET" && !stream {
			return
		}
		if after := acme.all(); after != before {
			t.Errorf("%s changed something in another tenant: %s", request, differ(before, after))
			before = after
		}
	}
	some := func(list []attempt) []attempt { // by default the first at each path, and a part of the others
		paths := map[string]bool{}
		n := 0
		return slices.DeleteFunc(list, func(a attempt) bool {
			path, _, _ := strings.Cut(a.method+a.path, "?")
			n++
			left := paths[path] && n%tests.Size(8, 1, 1) != 0
			paths[path] = true
			return left
		})
	}
	document := evil.send(nil, "GET", "/openapi.json", "").Body.Bytes()
	for _, a := range some(known.attempts(t, document)) {
		as := evil.admin
		if strings.Contains(a.path, "/worker/") {
			as = evil.worker
		}
		act(a, as...)
	}
	if much {
		acme.register()
	}
	for _, a := range some(known.clicks(t)) {
		headers := []string{"Cookie", api.SessionCookie + "=" + evil.cookie}
		if a.method == "POST" {
			headers = append(headers, "Content-Type", "application/x-www-form-urlencoded")
		}
		act(a, headers...)
	}
	return replies, known
}

// differ returns where two texts begin to differ.
func differ(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-80)
	return fmt.Sprintf("%.200q became %.200q", a[from:], b[from:])
}

// On every route of the API and of the pages, a user of one tenant receives the same whether another tenant has much or
// nothing, with that tenant's IDs, names and cursors in paths, queries and bodies, and changes nothing of it.
func TestTenantsDoNotInterfere(t *testing.T) {
	tests.WithoutRace(t)
	var much, nothing []reply
	var known *prey
	synctest.Test(t, func(t *testing.T) { much, known = explore(t, true, nil) })
	if t.Failed() {
		return
	}
	synctest.Test(t, func(t *testing.T) { nothing, _ = explore(t, false, known) })
	if len(much) != len(nothing) {
		t.Fatalf("%d and %d requests", len(much), len(nothing))
	}
	statuses := map[string]int{}
	for i, a := range much {
		statuses[a.response[:3]]++
		if b := nothing[i]; a != b {
			t.Errorf("%s: where another tenant has nothing, %s", a.request, differ(a.response, b.response))
		}
	}
	t.Logf("%d requests: %v", len(much), statuses)
}
