package browsertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

// An administrator creates a target with the usual rules and tests it; a run that fails raises an alarm, which appears
// without a reload, with the answer of the target, and ends by a click.
func TestAlarms(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(body))
		_, _ = io.WriteString(w, "accepted by the test")
	}))
	defer service.Close()
	h := build(t, embed.Config{Alarms: alarms.Config{Allow: func(netip.AddrPort) error { return nil }, Shows: func(netip.AddrPort) bool { return true }}}, shop()...)
	b := h.newTab(true)
	b.open("/")
	b.leads(`//nav//a[normalize-space()="Alarms"]`)
	b.sees("No targets yet.")
	b.inOrder("/alarms without any")
	b.leads(button("New target"))
	b.sees("PagerDuty")
	b.inOrder("/alarms/targets/new")
	b.leads(`//a[normalize-space()="Webhook"]`)
	b.inOrder("/alarms/targets/new?kind=webhook")
	b.write("#a-name", "duty")
	b.write("#a-url", service.URL+"/a-secret-path")
	b.leads(button("Create target"))
	b.sees("Saved.")
	b.sees("runs of a job failed for good")
	b.leads(button("Send test"))
	b.sees("Target duty accepted the test message (status 200): accepted by the test")
	if strings.Contains(ask[string](b, "document.documentElement.outerHTML"), "a-secret-path") {
		t.Error("the page has the URL")
	}
	b.open("/alarms")
	b.streams()
	run := h.start("shop.charge", `{"customer": "c7", "cents": -1}`)
	h.becomes(run.ID, jobs.Terminated)
	b.sees("Job shop.charge failed")
	b.sees("1 message")
	b.unfold(`//summary[contains(normalize-space(), "1 message")]`)
	b.sees("accepted by the test")
	b.inOrder("/alarms")
	b.leads(`//a[normalize-space()="failed"]`)
	b.inOrder("/alarms/rules/failed")
	b.open("/alarms/rules/new?kind=slow")
	b.expect("422")
	b.write("#r-name", "slow")
	b.write("#r-factor", "0.5")
	b.leads(button("Create rule"))
	b.sees("factor 0.5: want above 1")
	b.inOrder("/alarms/rules with an error")
	b.open("/alarms/targets/duty")
	b.inOrder("/alarms/targets/duty")
	b.open("/alarms")
	b.unfold(`//summary[contains(normalize-space(), "End alarm 1")]`)
	b.inOrder("/alarms with an open form")
	b.leads(`//button[contains(normalize-space(), "End alarm 1")]`)
	b.sees("Alarm ended.")
	b.sees("No open alarms.")
	mu.Lock()
	defer mu.Unlock()
	if len(bodies) < 2 || !strings.Contains(bodies[1], "shop.charge") {
		t.Errorf("sent: %q", bodies)
	}
}
