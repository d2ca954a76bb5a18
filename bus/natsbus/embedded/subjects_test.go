package embedded_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// members are the users of the bus in the table below.
var members = map[string]bus.Principal{
	"node":    {Tenant: "default", Role: bus.Node, Name: "n1"},
	"w1":      {Tenant: "default", Role: bus.Worker, Name: "w1", App: "billing"},
	"w2":      {Tenant: "default", Role: bus.Worker, Name: "w2", App: "billing"},
	"payroll": {Tenant: "default", Role: bus.Worker, Name: "w1", App: "payroll"},
	"shop":    {Tenant: "default", Role: bus.Client, Name: "shop"},
	"web":     {Tenant: "default", Role: bus.Client, Name: "web"},
	"acme":    {Tenant: "acme", Role: bus.Worker, Name: "w1", App: "billing"},
	"buyer":   {Tenant: "acme", Role: bus.Client, Name: "shop"},
}

// row lists the roles that may publish on a subject, and those that may subscribe to it.
type row struct{ subject, publish, subscribe string }

const (
	sessions = "w1 w2 payroll shop web" // of the tenant default
	randomly = ".MARKMARKMARKMARKMARKMARKMA.RANDOMRANDOMRANDOMRANDOMRA"
)

// rules is the table at the head of natsbus/subjects.go, for each role, each way round.
var rules = []row{
	{"to.default.billing.w1.=none", "node", "node w1"},
	{"to.default.billing.w1.x", "node", "node w1"},
	{"to.default.payroll.w1.x", "node", "node payroll"},
	{"to.acme.billing.w1.x", "node", "node acme"},

	{"answer.default.billing.w1.=none" + randomly, "node w1", "node"},
	{"answer.default.billing.w1.x" + randomly, "node w1", "node"},
	{"answer.default.payroll.w1.x" + randomly, "node payroll", "node"},
	{"answer.acme.billing.w1.x" + randomly, "node acme", "node"},

	{"call.default.worker.w1.billing.store", "node w1", "node"},
	{"call.default.worker.w1.=none.store", "node", "node"},
	{"call.default.client.shop.=none.store", "node shop", "node"},
	{"call.default.client.shop.=none.live", "node shop", "node"},
	{"call.default.node.n1.=none.store", "node", "node"},
	{"call.acme.worker.w1.billing.store", "node acme", "node"},

	{"inbox.default.worker.w1.billing" + randomly, "node", "node w1"},
	{"inbox.default.worker.w1.payroll" + randomly, "node", "node payroll"},
	{"inbox.default.client.shop.=none" + randomly, "node", "node shop"},
	{"inbox.default.node.n1.=none" + randomly, "node", "node"},
	{"inbox.default.node.n1.=none.x", "node", "node"},
	{"inbox.acme.client.shop.=none" + randomly, "node", "node buyer"},

	{"signal.default.cancel.=none.default.node.n1.=none", "node", "node " + sessions},
	{"signal.default.changed.=none.default.node.n1.=none", "node", "node " + sessions},
	{"signal.default.live.=none.default.node.n1.=none", "node", "node " + sessions},
	{"signal.default.commit.=none.default.node.n1.=none", "node", "node"},
	{"signal.default.node.=none.default.node.n1.=none", "node", "node"},
	{"signal.default.cancel.w2.default.worker.w1.billing", "node", "node " + sessions},
	{"signal.default.changed.=none.default.worker.w1.billing", "node", "node " + sessions},
	{"signal.default.live.=none.default.client.shop.=none", "node", "node " + sessions},
	{"signal.default.log.=none.default.worker.w1.billing", "node w1", "node"},
	{"signal.default.log.=none.default.worker.w1.payroll", "node payroll", "node"},
	{"signal.default.log.=none.default.client.shop.=none", "node", "node"},
	{"signal.default.log.=none.acme.worker.w1.billing", "node", "node"},
	{"signal.acme.log.=none.acme.worker.w1.billing", "node acme", "node"},
	{"signal.acme.log.=none.default.worker.w1.billing", "node", "node"},
	{"signal.acme.live.=none.acme.node.n1.=none", "node", "node acme buyer"},

	// Subjects of a server, and subjects of no one. By those of JetStream a server could be made to publish anywhere.
	{"$JS.API.INFO", "node", "node"},
	{"$JS.API.STREAM.CREATE.S", "node", "node"},
	{"$JS.API.STREAM.DELETE.S", "node", "node"},
	{"$JS.API.CONSUMER.CREATE.S.mine", "node", "node"},
	{"$JS.API.CONSUMER.MSG.NEXT.S.billing", "node", "node"},
	{"$JS.API.DIRECT.GET.S", "node", "node"},
	{"$JS.ACK.S.billing.1.1.1.1.0", "node", "node"},
	{"$JS.ACK._.hash.S.billing.1.1.1.1.0.x", "node", "node"},
	{"$JS.EVENT.ADVISORY.API", "node", "node"},
	{"$SYS.REQ.SERVER.PING", "", ""},
	{"_INBOX.x.y", "node", "node"},
	{"anything", "node", "node"},
}

// The roles that may publish and subscribe on each subject, on each kind of server that has users.
func TestWhoMayUseWhichSubject(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (url string, as func(bus.Principal) []nats.Option){
		"our server with users": serverWithUsers, "our server with tokens": serverWithTokens, "a server with our configuration": serverWithConfig,
	} {
		t.Run(name, func(t *testing.T) {
			url, as := start(t)
			for who, p := range members {
				refused := refusals(t, url, as(p))
				for _, r := range rules {
					if may := slices.Contains(strings.Fields(r.publish), who); may == refused["Publish "+r.subject] {
						t.Errorf("%s may publish on %s: %t, want %t", who, r.subject, !may, may)
					}
					if may := slices.Contains(strings.Fields(r.subscribe), who); may == refused["Subscription "+r.subject] {
						t.Errorf("%s may subscribe to %s: %t, want %t", who, r.subject, !may, may)
					}
				}
			}
		})
	}
}

var violation = regexp.MustCompile(`Permissions Violation for (Publish|Subscription) to "(\S+)"`)

// refusals tries all subjects of the table, and returns those that the server refused.
func refusals(t *testing.T, url string, as []nats.Option) map[string]bool {
	t.Helper()
	const last = "$SYS.last" // which no user may use
	refused, done := map[string]bool{}, make(chan struct{})
	nc, err := nats.Connect(url, append(as, nats.Timeout(time.Minute), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		m := violation.FindStringSubmatch(err.Error())
		switch {
		case m == nil:
			t.Errorf("the server reports %v", err)
		case m[2] == last:
			close(done)
		default:
			refused[m[1]+" "+m[2]] = true
		}
	}))...)
	must(t, err)
	defer nc.Close()
	for _, r := range rules {
		_, err := nc.Subscribe(r.subject, func(*nats.Msg) {})
		must(t, err)
		must(t, nc.Publish(r.subject, nil))
	}
	must(t, nc.Publish(last, nil))
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the server does not answer")
	}
	return refused
}

func grants() (all []natsbus.Grant) {
	for _, who := range slices.Sorted(maps.Keys(members)) {
		g := natsbus.Grant{User: who, Password: "secret", As: members[who]}
		if app := g.As.App; app != "" {
			g.Apps, g.As.App = []string{app}, ""
		}
		all = append(all, g)
	}
	return all
}

// user is how a member connects to a server with users.
func user(p bus.Principal) []nats.Option {
	for who, q := range members {
		if p == q {
			return []nats.Option{nats.UserInfo(who, "secret")}
		}
	}
	return nil
}

func serverWithUsers(t *testing.T) (string, func(bus.Principal) []nats.Option) {
	s, err := embedded.Start(embedded.Config{Users: grants()})
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	return s.URL(), user
}

func serverWithTokens(t *testing.T) (string, func(bus.Principal) []nats.Option) {
	s, err := embedded.Start(embedded.Config{Admit: func(_ context.Context, token string) (bus.Principal, string, error) {
		p, ok := members[token]
		if !ok {
			return p, "", kernel.Refuse(jobs.Forbidden, "the token is not known")
		}
		return bus.Principal{Tenant: p.Tenant, Role: p.Role}, p.App, nil
	}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	return s.URL(), func(p bus.Principal) []nats.Option {
		if p.Role == bus.Node {
			return []nats.Option{nats.InProcessServer(s), nats.Token(s.Insider())}
		}
		for who, q := range members {
			if p == q {
				return []nats.Option{nats.UserInfo(p.Name, who)}
			}
		}
		return nil
	}
}

func serverWithConfig(t *testing.T) (string, func(bus.Principal) []nats.Option) {
	return configured(t, grants()).ClientURL(), user
}

// A subject that is added to natsbus has its rows in the table: subjects are made of the roots in subjects.go, and each
// root has a row.
func TestEverySubjectHasARow(t *testing.T) {
	has := func(root string) bool {
		return slices.ContainsFunc(rules, func(r row) bool { return strings.HasPrefix(r.subject, root+".") })
	}
	files, err := filepath.Glob("../*.go")
	must(t, err)
	roots := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if !strings.HasSuffix(name.Name, "Root") {
						continue
					}
					roots++
					root, err := strconv.Unquote(n.Values[i].(*ast.BasicLit).Value)
					must(t, err)
					if !has(root) {
						t.Errorf("%s is the root of subjects, and has no row in the table: who may use them?", root)
					}
					return false
				}
			case *ast.BasicLit:
				if n.Kind != token.STRING {
					return false
				}
				text, err := strconv.Unquote(n.Value)
				must(t, err)
				if literal.MatchString(text) && !slices.Contains(notMade, text) {
					t.Errorf("%s has %q: make a subject of a root in subjects.go", filepath.Base(path), text)
				}
			}
			return true
		})
	}
	if roots < 5 {
		t.Error("the roots in subjects.go were not found")
	}
}

// literal is a text that begins like a subject. notMade are those that subjects are compared with, not made of.
var (
	literal = regexp.MustCompile(`^[$A-Za-z_][$\w-]*\.[^\s/:]*$`)
	notMade = []string{"$SYS.>"}
)
