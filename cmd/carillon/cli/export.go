package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
)

func (a *asker) exportCommand() *cobra.Command {
	var app string
	var whole bool
	c := &cobra.Command{Use: "export [key ...]", Short: "Export edited fields as a file for apply",
		Long:    "Export the edited fields of jobs as YAML for \"carillon apply\"; with --all, all effective settings.",
		Example: lines("carillon export > jobs.yaml", "carillon export billing.close-day --all", "carillon export --app billing"),
		RunE: a.does(func(ctx context.Context, keys []string) error {
			list, err := a.exported(ctx, keys, app)
			if err != nil {
				return err
			}
			var items, names []string
			for _, j := range list {
				if whole || len(j.Edited) > 0 || len(keys) > 0 {
					item, err := statement(j, whole)
					if err != nil {
						return err
					}
					items, names = append(items, item), append(names, string(j.Key))
				}
			}
			raw := []byte(`{"jobs":[` + strings.Join(items, ",") + `]}`)
			if a.format == "" {
				a.format = "yaml"
			}
			return a.show(view{raw: raw, names: names})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().StringVar(&app, "app", "", "only jobs of this app (worker group)")
	c.Flags().BoolVar(&whole, "all", false, "all effective settings, not only edited fields")
	return c
}

// statement is a job as a file has it: the edited fields, or all, in the order of the help.
func statement(j api.Job, whole bool) (string, error) {
	raw, err := json.Marshal(j.Policy)
	if err != nil {
		return "", err
	}
	policy := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &policy); err != nil {
		return "", err
	}
	parts := []string{fmt.Sprintf(`"key":%q,"kind":%q,"app":%q`, j.Key, j.Kind, j.App)}
	for _, f := range fields {
		if v, ok := policy[f.name]; ok && (whole || slices.Contains(j.Edited, f.name)) {
			parts = append(parts, fmt.Sprintf("%q:%s", f.name, v))
		}
	}
	return "{" + strings.Join(parts, ",") + "}", nil
}

// exported returns the named jobs, or all.
func (a *asker) exported(ctx context.Context, keys []string, app string) ([]api.Job, error) {
	if len(keys) > 0 {
		list := make([]api.Job, len(keys))
		for i, key := range keys {
			j, _, err := a.job(ctx, key)
			if err != nil {
				return nil, err
			}
			list[i] = j
		}
		return list, nil
	}
	q := url.Values{}
	set(q, "app", app)
	all, err := a.pages(ctx, "/jobs", q, "after", 0, 1000)
	if err != nil {
		return nil, err
	}
	return decoded[api.Job](all.Items)
}
