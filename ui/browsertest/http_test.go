package browsertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// An HTTP job is made by its form and tried at once: the page of the run shows the exchange, that of the job what it
// calls; and all three are in order in both themes and at every width.
func TestHTTPJobIsTried(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != `{"order":17}` {
			http.Error(w, "which order?", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte(`{"paid":"seventeen bells"}`))
	}))
	t.Cleanup(target.Close)
	h := build(t, embed.Config{HTTPJobs: &httpjob.Config{Guard: httpjob.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}}, shop()...)
	b := h.newTab(true)
	b.open("/new")
	b.inOrder("/new")
	try := func(key, body string) {
		t.Helper()
		b.open("/new")
		b.write(field("key"), key)
		ask[string](b, `document.querySelector("[name='request.0.method']").value = "POST"`)
		b.write(field("request.0.url"), target.URL+"/orders/that/have/a/long/name/so/that/lines/have/to/be/broken/somewhere/${jobId}")
		b.write(field("request.0.body"), body)
		b.write(field("retries"), "0")
		b.leads(button("Save and run"))
	}
	try("shop.pay", `{"order": 17}`)
	b.sees("seventeen bells")
	b.sees("status=200")
	b.inOrder("the run")
	b.open("/jobs/shop.pay")
	b.sees("Requests")
	b.sees("POST " + target.URL)
	b.inOrder("the job")

	try("shop.pay-nothing", `{"order": 0}`)
	b.sees("request 1 was answered with 400: which order?")
	b.inOrder("the run that failed")

	// Its requests are edited with buttons for rows; the new request is made, and a credential is not shown again.
	b.open("/jobs/shop.pay")
	b.leads(`a[href="/jobs/shop.pay/requests"]`)
	b.write(`[name="request.0.header"]`, "Authorization")
	b.write(`[name="request.0.value"]`, "Bearer s3cr3t")
	b.leads(button("Add request"))
	ask[string](b, `document.querySelector("[name='request.1.method']").value = "POST"`)
	b.write(field("request.1.url"), target.URL+"/second")
	b.write(field("request.1.body"), `{"order":17}`)
	b.leads(button("Add notification"))
	b.write(field("notification.0.url"), target.URL+"/news")
	b.inOrder("the requests")
	b.leads(button("Save"))
	b.sees("POST " + target.URL + "/second")
	b.sees("POST " + target.URL + "/news")
	b.open("/jobs/shop.pay/requests")
	if is := ask[string](b, `document.querySelector("[name='request.0.value']").value`); is != "***" {
		t.Errorf("the credential is shown as %q", is)
	}
}
