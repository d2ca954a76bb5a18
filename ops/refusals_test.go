package ops_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Rules are in the kernel and in the commit, so that a command meets them by whatever door it comes. A refusal that ops
// has and they have not is in this table, with the reason why it is no rule about a change.
const (
	ofForm   = "how a request is written: a form, a page of a list, a filter, a bulk; no command has it"
	ofRead   = "nothing is changed"
	ofTimes  = "the rules know no schedules and zones, whose tables differ between machines"
	ofNode   = "only this process knows: its configuration, its cluster, the workers that are online"
	ofChoice = "asks for a choice before a change that may surprise a person; the rules can do either"
	ofPast   = "finished runs are no rows, and never change: nothing can come between"
	ofResult = "an error after a part was done"
	ofLogin  = "who the sender is: no command begins before"
	ofSecret = "the text of a secret, of which the rules know the hash only"
	ofBeside = "the outbox is a table of the program's database, and no row of the store"
)

// onlyInOps are the refusals of ops that are no rules, by their reason.
var onlyInOps = map[string][]string{
	ofForm: {
		"%d jobs have this tag or these arguments: narrow the list by app or match to at most %d jobs",
		"%d refused requests are selected: at most %d can be changed at once",
		"calendar %s is both declared and pruned, or given twice",
		"calendar %s is given twice",
		"cursor %.60q is not from this list: use the cursor of the previous request",
		"from %s to %s there are more than %d due times, the most of one backfill: end it before %s",
		"from is missing: set the start of the period",
		"invalid action %.20q: want one of %q",
		"invalid held %.20q: want one of %q",
		"invalid keep %d: want 0 to %d",
		"invalid missed %.20q: want one of %q",
		"invalid number of batches %d: want 1 to %d",
		"invalid number of days %d: want 1 to %d",
		"invalid number of due times %d: want 0 to %d",
		"invalid number of executions to keep %d: want 0 to %d",
		"invalid number of lines %d: want 1 to %d",
		"invalid number of occasions %d: want 1 to %d",
		"invalid number of runs %d: want 1 to %d",
		"invalid page size %d: want 1 to %d",
		"invalid parallel %d: want 1 to %d",
		"invalid period: from %s is not before to %s",
		"invalid role %.20q: want viewer, operator or admin",
		"invalid runs %.20q: want one of %q",
		"invalid state %.20q: want one of %q",
		"invalid state of alarms %.20q: want open or unsettled",
		"invalid to %s: want a past time, because future due times fire by themselves",
		"invalid validity %v of a token: want 0 (until revoked) to %v",
		"job %s belongs to app %s, and only its code can move it to another",
		"job %s has revision %d, and no revision %d to go back to",
		"job %s has revision %d, and no revision %d",
		"job %s is %s, and a key never changes its kind: choose another key",
		"job %s is both declared and pruned, or given twice",
		"job %s is given twice",
		"job %s is triggered and has no due times: leave missed out",
		"job %s: revision %d is too old: the oldest one kept is %d",
		"keep needs a job: set job",
		"more than %d due times have passed since %s: resume with missed skip, and backfill parts of them",
		"no refused requests are selected: give their numbers",
		"none of these jobs declares %.100s as searchable: add the tag carillon:\"search\" to the field",
		"pruning needs a bundle: name it",
		"reason has %d bytes, at most %d are allowed",
		"taking over needs a bundle: name it",
		"the filter is empty: give a condition, or match * for all",
		"there is no job %s yet: to create it, set its kind, recurring or triggered",
		"there is no job %s yet: to create it, set the app whose workers run it",
		"there is no target of alarms %.60q",
		"too many calendars: %d, at most %d in one request",
		"too many jobs or calendars to prune: %d and %d, at most %d in one request",
		"too many jobs: %d, at most %d in one request",
	},
	ofRead: {
		"invalid range of %s: want more than 0s, up to %s",
		"invalid range: from %s must be before to %s",
		"job %s has no execution %d among its latest ones",
		"job %s is triggered: it has no due times, and no ledger",
		"tenant %s may not take a backup: it contains all tenants",
		"there is no alarm %d: it has been deleted, or never was",
		"there is no alarm rule %.60q",
		"there is no calendar %.60q",
		"there is no tenant %.60q",
	},
	ofTimes: {
		"calendar %s, %s",
		"default zone: %v",
		"unknown time zone %.60q of alarm rule %s: want an IANA name such as Europe/Berlin",
	},
	ofNode: {
		"another ledger is being exported by this node: try again later",
		"app %.60q has no online worker",
		"invalid limits of sessions: idle %v, longest %v: want at least 1m, and at most 720h and not less than idle",
		"no online worker is named %.60q",
		"tenant %s may not manage nodes",
		"the store does not answer",
		"there is no leader yet",
		"this process sends no alarms",
		"this process serves no workers over HTTP",
		"this scheduler is not a cluster: to let nodes join, start it with cluster.addr",
		"this scheduler takes no requests from transactions: its rows are not in a database",
		"this server requires no authentication, so every caller is an admin of tenant %s: start it with authentication to create tenants",
		"this store cannot be backed up from here: use the tools of its database",
	},
	ofChoice: {
		"calendar %s is used by %s, such as %s: remove it from their calendars first",
		"debug mode holds %d runs back: choose to release or to discard them",
		"job %s already exists",
		"job %s has %d live runs: choose to cancel them or to let them finish",
		"the family of %s has %d live runs (of %s): choose to cancel them or to let them finish",
		"the jobs to delete have %d live runs (of %s): choose to cancel them or to let them finish",
	},
	ofPast: {
		"%s runs are live: only finished runs can be run again",
		"%s runs have finished: only live runs can be cancelled",
		"run %s belongs to the scheduler: it can be run again with its own arguments only",
		"run %s is %s: it has already finished",
		"run %s is %s: only a finished run can be run again",
	},
	ofResult: {
		"%d of %d jobs were deleted, then: %v",
		"%d of %d were done, and then: %v",
		"%d of the workers were changed, then: %v",
		"some changes were written, others were not: %v",
		"some of the runs were created, others were not: %v",
		"unknown outcome: the change was committed, but its result cannot be read: %v",
	},
	ofLogin: {
		"the token is unknown, expired or revoked",
		"there is no such session: it has ended, or its person has switched to another tenant, which began a new one; look at the list again",
		"you have no rights in tenant %.200s, or it was created after your sign-in: sign in again",
	},
	ofSecret: {
		"invalid token text: want carillon_%s_ID_SECRET, with an ID of %d lower-case letters and digits and a random secret of at least %d letters and digits",
	},
	ofBeside: {
		"there is no refused request with these numbers: they were retried or discarded meanwhile, or never refused",
	},
}

// A check that only ops has fails here: move it to the kernel or the commit, with the same text, or give the reason.
func TestRefusalsAreRules(t *testing.T) {
	rules := refusals(t, "../internal/kernel", "../metastore")
	here := refusals(t, ".")
	listed := map[string]bool{}
	for _, texts := range onlyInOps {
		for _, text := range texts {
			listed[text] = true
		}
	}
	for text, at := range here {
		switch _, rule := rules[text]; {
		case rule && listed[text]:
			t.Errorf("%s: the rules have %q, too: take it out of the table", at, text)
		case !rule && !listed[text]:
			t.Errorf("%s: only ops refuses with %q: move the check to the rules (metastore), or list it in onlyInOps with the reason", at, text)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(listed)) {
		if here[text] == "" {
			t.Errorf("ops does not refuse with %q any more: take it out of the table", text)
		}
	}
}

// refusals are the texts of a package's refusals, and where each is.
func refusals(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && refuses(call.Fun) {
					if text, ok := firstText(call); ok {
						found[text] = set.Position(call.Pos()).String()
					}
				}
				return true
			})
		}
	}
	return found
}

// refuses reports whether a function makes refusals: kernel.Refuse, Invalid or Exhausted.
func refuses(f ast.Expr) bool {
	name := ""
	switch f := f.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	return name == "Refuse" || name == "Invalid" || name == "Exhausted"
}

// firstText is the first argument that is a text.
func firstText(call *ast.CallExpr) (string, bool) {
	for _, a := range call.Args {
		if lit, ok := a.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			return text, err == nil
		}
	}
	return "", false
}
