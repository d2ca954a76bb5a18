package browsertest

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

// An administrator of the server creates a tenant, limits and suspends it; its admin sees nothing of others.
func TestTenants(t *testing.T) {
	h := build(t, embed.Config{Tokens: true}, shop()...)
	_, admin, err := h.Ops().Grant(t.Context(), ann, ops.NewToken{Name: "ann", Role: kernel.RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	b := h.newTab(true)
	b.expect("409")
	b.open("/tenants")
	b.write("#token", admin)
	b.leads(button("Sign in"))
	b.sees("No tenants yet.")
	b.inOrder("/tenants")
	b.write("#n-name", "acme")
	b.write("#n-title", "Acme Ltd")
	b.write("#n-starts", "10/s")
	b.leads(button("Create tenant"))
	b.sees("Shown only once.")
	b.inOrder("/tenants with a new token")
	token := ask[string](b, `document.querySelector("#made pre").textContent`)
	if !strings.HasPrefix(token, "carillon_acme_") {
		t.Fatalf("the token is %q", token)
	}
	b.write("#n-name", "acme")
	b.leads(button("Create tenant"))
	b.sees("tenant acme exists since")
	b.leads(`//a[normalize-space()="acme"]`)
	b.inOrder("/tenants/acme")
	b.write("#n-jobs", "5")
	b.leads(button("Save"))
	b.sees("Saved.")
	if limit := ask[string](b, `document.querySelector("#n-jobs").value`); limit != "5" {
		t.Errorf("the limit of jobs is %q", limit)
	}
	other := h.newTab(true)
	other.expect("403")
	other.open("/jobs")
	other.write("#token", token)
	other.leads(button("Sign in"))
	other.sees("No jobs yet")
	if strings.Contains(ask[string](other, "document.documentElement.outerHTML"), "shop.") {
		t.Error("a tenant sees jobs of another")
	}
	if status := other.open("/tenants"); status != 403 {
		t.Errorf("a tenant's admin opens /tenants: %d", status)
	}

	b.leads(button("Suspend tenant"))
	b.sees("suspended")
	b.inOrder("/tenants/acme, suspended")
	b.write("#n-confirm", "acme")
	other.expect("401") // its token is deleted, and its page may look again
	b.leads(button("Delete tenant"))
	b.sees("The tenant is being deleted.")
}
