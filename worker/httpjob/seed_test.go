package httpjob_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// seeds asks a route of the seed, and returns its data.
func (p *site) seeds(method, path, body string, want int) json.RawMessage {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.door.URL+"/api/v1/seed"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, _ := io.ReadAll(response.Body)
	var answer struct {
		Code    int             `json:"resp_code"`
		Message *string         `json:"resp_msg"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil || response.StatusCode != want || answer.Code != want || (answer.Message == nil) != (want == 200) {
		p.t.Fatalf("%s %s: %d %s, want %d", method, path, response.StatusCode, raw, want)
	}
	return answer.Data
}

// execution is a run in the seed's format.
type execution struct {
	ExecutionID   string
	JobID         string
	ExecuteNumber int32
	Status        string
	Logs          []struct{ Text string }
}

func (p *site) executions(job string) (list []execution) {
	p.t.Helper()
	if err := json.Unmarshal(p.seeds("GET", "/main/execution?jobId="+job, "", 200), &list); err != nil {
		p.t.Fatal(err)
	}
	return list
}

// The long example of the second seed, as it is written there: posted, triggered, asked for its outcome, notified, and
// paused. Only its timeout is longer, for a slow machine. It may come due by itself meanwhile, every five minutes.
func TestTheSeedsLongExampleRuns(t *testing.T) {
	raw, err := os.ReadFile("testdata/school.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Timer []json.RawMessage }
	if err := json.Unmarshal([]byte("{"+string(raw)+"}"), &file); err != nil || len(file.Timer) != 1 {
		t.Fatal(len(file.Timer), err)
	}
	p := newSite(t, "", func(n int, r seen) (int, string) {
		switch path, _, _ := strings.Cut(r.path, "?"); path {
		case "/main/resultHandleSchool":
			return 200, r.body // what was sent
		case "/main/provideCheckUrl/20220125":
			return 200, `{"status":"succeed","message":"done","progress":"2/2","datetime":"2022-10-26 10:23:13","data":{"pupils":2}}`
		}
		return 200, `{"ok":true}`
	})
	p.until("a node leads", func() bool { return p.s.Ready(t.Context()) == nil })
	doc := strings.Replace(string(file.Timer[0]), `"timeoutSeconds": 15,`, `"timeoutSeconds": 600,`, 1)
	if doc == string(file.Timer[0]) {
		t.Fatal("the example has another timeout")
	}
	p.seeds("POST", "/jobs/20220125", doc, 200)
	var made execution
	if err := json.Unmarshal(p.seeds("POST", "/jobs/20220125/trigger", `{}`, 200), &made); err != nil {
		t.Fatal(err)
	}
	id, err := jobs.ParseID(made.ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	if run := p.end(id); run.State != jobs.Succeeded || string(run.Result) != `{"pupils":2}` {
		t.Fatalf("%s %s %s", run.State, run.Error, run.Result)
	}
	notes := p.notices(id, 2) // succeed, finalSucceed
	if notes[0].State != jobs.Succeeded || notes[1].State != jobs.Succeeded {
		t.Errorf("notifications:%s, %s", notes[0].State, notes[1].State)
	}
	const students = `[{"age":40,"name":"20220125","number":1},{"age":30,"name":"20220125","number":8}]`
	number := fmt.Sprint(made.ExecuteNumber)
	for path, want := range map[string]string{"/main/resultHandleSchool?feedbackUrl=": `"describe":"a school..."`, "/main/workHandleStr?feedbackUrl=": `{"school":` + students + `}`,
		"/main/provideCheckUrl/20220125?executeNumber=" + number: "", "/client/main/notifierClient/20220125?executeNumber=" + number: `"status":"`} {
		i := slices.IndexFunc(p.got(), func(r seen) bool { return r.path == path })
		if i < 0 {
			t.Errorf("%s was not asked: %+v", path, p.got())
			continue
		}
		if r := p.got()[i]; !strings.Contains(r.body, want) || r.header.Get("name") != "chensc" {
			t.Errorf("%s was sent %s with %v", path, r.body, r.header)
		}
	}
	list := p.executions("20220125")
	if i := slices.IndexFunc(list, func(e execution) bool { return e.ExecutionID == made.ExecutionID }); i < 0 || list[i].Status != "succeed" {
		t.Errorf("%+v", list)
	}
	p.seeds("PUT", "/jobs/20220125?active=0", "", 200)
	if doc := string(p.seeds("GET", "/jobs/20220125", "", 200)); !strings.Contains(doc, `"active":0`) || !strings.Contains(doc, `"period":"0 0/5 * * * ?"`) {
		t.Errorf("%s", doc)
	}
	p.seeds("DELETE", "/job/20220125", "", 200)
	p.seeds("GET", "/jobs/20220125", "", 404)
}

// Executions are counted from 1, whatever starts them; all attempts and calls of one have its number. An update runs a
// job without a timer once more, also one that says nothing new.
func TestS2_04And49UpdatesExecuteAndExecutionsCount(t *testing.T) {
	p := newSite(t, "", func(n int, r seen) (int, string) {
		if n == 1 && strings.HasPrefix(r.path, "/flaky") {
			return 500, ""
		}
		return 200, `{}`
	})
	p.until("a node leads", func() bool { return p.s.Ready(t.Context()) == nil })
	doc := func(name string) string {
		return `{"jobName":"` + name + `","creator":"1","creatorName":"one","qos":0,"active":1,"retry":[{"errorEquals":"500","intervalSeconds":0}],
			"request":[{"method":"POST","url":"service://far/flaky/` + name + `/${executeNumber}/${schedulingExecuteNumber}"}],
			"notification":[{"method":"POST","url":"service://far/noted/${executeNumber}","stateEquals":"finalSucceed"}]}`
	}
	numbers := func(want ...int32) []execution {
		t.Helper()
		var list []execution
		p.until(fmt.Sprintf("executions %v", want), func() bool {
			list = p.executions("once")
			ended := slices.IndexFunc(list, func(e execution) bool { return e.Status != "succeed" }) < 0
			return ended && len(list) >= len(want)
		})
		var got []int32
		for _, e := range list {
			got = append(got, e.ExecuteNumber)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("executions %v, want %v", got, want)
		}
		return list
	}
	p.seeds("POST", "/jobs/once", doc("a"), 200)
	numbers(1)
	p.seeds("POST", "/jobs/once/update", doc("b"), 200)
	numbers(2, 1)
	p.seeds("POST", "/jobs/once/update", doc("b"), 200)
	numbers(3, 2, 1)
	p.seeds("POST", "/jobs/once/trigger", `{"x":1}`, 200)
	list := numbers(4, 3, 2, 1)
	id, err := jobs.ParseID(list[0].ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	p.notices(id, 1)
	p.until("the notifications", func() bool {
		return slices.ContainsFunc(p.got(), func(r seen) bool { return r.path == "/noted/4" })
	})
	paths := map[string]int{}
	for _, r := range p.got() {
		paths[r.path]++
	}
	for path, want := range map[string]int{"/flaky/a/1/1": 2, "/flaky/b/2/2": 2, "/flaky/b/3/3": 2, "/flaky/b/4/4": 2} {
		if paths[path] != want {
			t.Errorf("%s was called %d times, want %d: %v", path, paths[path], want, paths)
		}
	}
	paused := strings.Replace(doc("b"), `"active":1`, `"active":0`, 1)
	p.seeds("POST", "/jobs/once/update", paused, 200)
	if doc := string(p.seeds("GET", "/jobs/once", "", 200)); !strings.Contains(doc, `"active":0`) || strings.Contains(doc, `"timer"`) {
		t.Errorf("%s", doc)
	}
}

// A job can belong to one execution of another: what it wrote is found by that, and it is purged with its parent.
// Finished executions are purged on request.
func TestS2_08to12FamiliesAndCleaning(t *testing.T) {
	p := newSite(t, "", func(int, seen) (int, string) { return 200, `{"ok":true}` })
	p.until("a node leads", func() bool { return p.s.Ready(t.Context()) == nil })
	doc := func(more string) string {
		return `{"jobName":"n","creator":"1","creatorName":"one","request":[{"url":"service://far/x"}],"timer":{"dueTime":"0s","period":"external"},"qos":0` + more + `}`
	}
	trigger := func(job string) (e execution) {
		t.Helper()
		if err := json.Unmarshal(p.seeds("POST", "/jobs/"+job+"/trigger", `{}`, 200), &e); err != nil {
			t.Fatal(err)
		}
		id, err := jobs.ParseID(e.ExecutionID)
		if err != nil {
			t.Fatal(err)
		}
		if run := p.end(id); run.State != jobs.Succeeded {
			t.Fatalf("%s %s", run.State, run.Error)
		}
		return e
	}
	p.seeds("POST", "/jobs/above", doc(""), 200)
	first := trigger("above")
	p.seeds("POST", "/jobs/below", doc(fmt.Sprintf(`,"parentJob":"above","parentJobExecution":%d`, first.ExecuteNumber)), 200)
	if text := string(p.seeds("GET", "/jobs/below", "", 200)); !strings.Contains(text, fmt.Sprintf(`"parentJob":"above","parentJobExecution":%d`, first.ExecuteNumber)) {
		t.Errorf("%s", text)
	}
	child := trigger("below")
	for _, path := range []string{fmt.Sprintf("/main/getChildJobLogs?parentJobId=above&execution=%d", first.ExecuteNumber), "/main/getChildJobLogsByExecutionId?executionId=" + first.ExecutionID} {
		p.until("the log of the child: "+path, func() bool {
			var list []execution
			if err := json.Unmarshal(p.seeds("GET", path, "", 200), &list); err != nil {
				t.Fatal(err)
			}
			return len(list) == 1 && list[0].ExecutionID == child.ExecutionID && list[0].Status == "succeed" && len(list[0].Logs) > 0
		})
	}
	p.seeds("GET", "/main/getChildJobLogs?parentJobId=above&execution=99", "", 404)
	p.seeds("GET", "/main/getChildJobLogsByExecutionId?executionId="+jobs.NewID(time.Now()).String(), "", 404)

	for range 3 {
		trigger("above")
	}
	p.seeds("DELETE", "/main/schedule/clean?retainExecutionCount=2", "", 200)
	p.until("two executions are kept", func() bool { return len(p.executions("above")) == 2 })
	if n := len(p.executions("below")); n != 1 {
		t.Errorf("%d executions of a job that had one", n)
	}

	if gone := string(p.seeds("DELETE", "/main/destroyByParentJob?parentJobId=above", "", 200)); gone != `["below","above"]` {
		t.Errorf("gone: %s", gone)
	}
	p.seeds("GET", "/jobs/below", "", 404)
	p.seeds("DELETE", "/main/schedule/clean?cleanDestroyJob=false", "", 200)
	if n := len(p.executions("above")); n != 2 {
		t.Errorf("%d executions are left of a job that is gone", n)
	}
	p.seeds("DELETE", "/main/schedule/clean", "", 200)
	p.until("nothing is left of them", func() bool { return len(p.executions("above"))+len(p.executions("below")) == 0 })
}
