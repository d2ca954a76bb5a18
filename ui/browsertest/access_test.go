package browsertest

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

// Who is not known is asked for a token and then led to where they were going; an admin gives out a token, and its
// holder sees no more than its role.
func TestAccess(t *testing.T) {
	h := build(t, embed.Config{Tokens: true}, shop()...)
	_, admin, err := h.Ops().Grant(t.Context(), ann, ops.NewToken{Name: "ann", Role: kernel.RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	b := h.newTab(true)
	b.expect("401") // Chromium reports the answer to a wrong token
	b.open("/access")
	if path := b.path(); path != "/login?next=%2Faccess" {
		t.Fatalf("a stranger is led to %s", path)
	}
	b.inOrder("/login")
	b.write("#token", "carillon_default_nonsense")
	b.leads(button("Sign in"))
	b.sees("Invalid or expired token.")
	b.write("#token", admin)
	b.leads(button("Sign in"))
	b.sees("Only a hash of each token is stored.")
	if path := b.path(); path != "/access" {
		t.Errorf("signed in, one is led to %s", path)
	}
	b.streams() // the cookie is good for the events, too

	for role, want := range map[string]string{"viewer": "", "operator": "t-app t-jobs t-tags", "admin": "", "worker": "t-app", "client": "t-app t-jobs t-tags"} {
		shown := ask[string](b, `(() => {
			document.querySelector("#t-role").value = "`+role+`";
			return ["t-app", "t-jobs", "t-tags"].filter((id) => document.getElementById(id).offsetParent).join(" ");
		})()`)
		if shown != want {
			t.Errorf("the form for the role %s shows %q, want %q", role, shown, want)
		}
	}
	b.inOrder("/access")
	ask[string](b, `document.querySelector("#t-role").value = "viewer"`)
	b.write("#t-name", "bob")
	b.leads(button("Create token"))
	b.sees("Shown only once.")
	b.inOrder("/access with a new token")
	text := ask[string](b, `document.querySelector("#made pre").textContent`)
	if !strings.HasPrefix(text, "carillon_default_") {
		t.Fatalf("the token is %q", text)
	}
	b.leads(button("Done"))
	b.sees("bob")
	if strings.Contains(ask[string](b, "document.documentElement.outerHTML"), text) {
		t.Error("the token is shown again")
	}
	b.walk("", 12, "/access", "/audit")
	b.leads(`//button[contains(normalize-space(), "Sign out")]`)
	b.sees("Sign in")
	if b.open("/runs"); !strings.HasPrefix(b.path(), "/login") {
		t.Errorf("signed out, one still sees %s", b.path())
	}

	other := h.newTab(true)
	other.expect("403")
	other.open("/jobs/shop.count")
	other.write("#token", text)
	other.leads(button("Sign in"))
	other.sees("Counts what is in the till")
	if n := ask[int](other, `document.querySelectorAll("#page form[method=post], a[href$='/edit'], a[href='/access']").length`); n > 0 {
		t.Errorf("a viewer sees %d forms and links that do something", n)
	}
	if status := other.open("/access"); status != 403 {
		t.Errorf("a viewer opens /access: %d", status)
	}
	other.open("/runs")
	other.streams()

	b.open("/login")
	b.write("#token", admin)
	b.leads(button("Sign in"))
	b.open("/access")
	b.unfold(`//summary[contains(normalize-space(), "Revoke") and contains(., "bob")]`)
	other.expect("401") // its page may look again before it is opened anew
	b.leads(button("Revoke token bob"))
	b.sees("Token revoked.")
	if other.open("/runs"); !strings.HasPrefix(other.path(), "/login") {
		t.Errorf("whose token is revoked still sees %s", other.path())
	}
}
