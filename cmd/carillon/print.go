package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/carillon-scheduler/carillon/ops"
)

func newConfig() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Print the configuration", Example: "  carillon config print --origin", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	var origin bool
	show := &cobra.Command{
		Use:   "print",
		Short: "Print the effective configuration",
		Long: "Print the effective configuration as a config file. Flags override the environment (CARILLON_HTTP_ADDR for http.addr),\n" +
			"which overrides the file, which overrides the defaults. Settings without a value are commented out.",
		Example: "  carillon config print --origin\n  carillon config print > carillon.yaml",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c, os.Environ())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(c.OutOrStdout(), cfg.print(origin))
			return err
		},
	}
	addFlags(show)
	show.Flags().BoolVar(&origin, "origin", false, "add the origin of each value")
	c.AddCommand(show)
	return c
}

// print is the configuration as a file, in the order of the table.
func (c *config) print(origin bool) string {
	var b strings.Builder
	var open []string // the sections that are open
	for _, s := range settings {
		path := strings.Split(s.key, ".")
		sections, name := path[:len(path)-1], path[len(path)-1]
		same := 0
		for same < len(sections) && same < len(open) && open[same] == sections[same] {
			same++
		}
		v, given := c.values[s.key]
		for i := same; i < len(sections); i++ {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", i), sections[i])
		}
		open = sections
		indent := strings.Repeat("  ", len(sections))
		if !given {
			fmt.Fprintf(&b, "%s# %s:  # %s\n", indent, name, s.about)
			continue
		}
		line := fmt.Sprintf("%s%s: %s", indent, name, scalar(shown(s.key, v.text)))
		if origin {
			line = fmt.Sprintf("%-44s # %s", line, v.origin)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// shown returns a value without secrets.
func shown(key, text string) string {
	if (key == "nats.url" || key == "store.url") && (strings.Contains(text, "@") || strings.Contains(text, "password=")) {
		return strings.ReplaceAll(withoutUsers(text), "://", "://***@")
	}
	if key == "alarms.heartbeat-url" && text != "" {
		return ops.HostOf(text)
	}
	if key == "jobs.from" && shownSource(text) != text {
		return shownSource(text) + "?***"
	}
	return text
}

// scalar is a value as YAML writes it; what looks like a number or a boolean is one.
func scalar(text string) string {
	var v any = text
	var node yaml.Node
	if yaml.Unmarshal([]byte(text), &node) == nil && len(node.Content) == 1 && node.Content[0].Kind == yaml.ScalarNode && node.Content[0].Value == text {
		return text
	}
	raw, err := yaml.Marshal(v)
	if err != nil {
		return text
	}
	return strings.TrimSpace(string(raw))
}
