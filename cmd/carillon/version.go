package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	var form string
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  carillon version\n  carillon version -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b := readBuild()
			switch form {
			case "":
				line := "carillon " + b.Version
				if b.Commit != "" && len(b.Commit) >= 12 {
					line += " (" + b.Commit[:12]
					if b.Modified {
						line += ", modified"
					}
					line += ")"
				}
				fmt.Fprintf(c.OutOrStdout(), "%s, %s %s/%s\n", line, b.Go, b.OS, b.Arch)
				return nil
			case "json":
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(b)
			}
			return usage("invalid -o %.20q: want json, or omit it for text", form)
		},
	}
	c.Flags().StringVarP(&form, "output", "o", "", "json instead of text")
	return c
}

// build describes what the program was built from.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit, RFC 3339
	Modified bool   `json:"modified"`       // the commit is not all of it
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func readBuild() build {
	b := build{Version: version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// version returns the module version of the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
