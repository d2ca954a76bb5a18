package main

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Marks around the table of values in the chart's README.
const (
	tableBegin = "<!-- values.yaml: begin -->\n"
	tableEnd   = "<!-- values.yaml: end -->\n"
)

// withTable returns a README with the table of the values.
func withTable(readme string, values []byte) (string, error) {
	before, rest, begins := strings.Cut(readme, tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return "", fmt.Errorf("the README has no lines %q and %q", strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return "", err
	}
	table := "| value | default | meaning |\n|---|---|---|\n"
	rows, err := rowsOf("", document.Content[0])
	return before + tableBegin + table + rows + tableEnd + after, err
}

// rowsOf returns a row for each value. A section has values of its own and no comment.
func rowsOf(prefix string, at *yaml.Node) (rows string, err error) {
	for i := 0; i < len(at.Content); i += 2 {
		key, value := at.Content[i], at.Content[i+1]
		name, comment := prefix+key.Value, strings.TrimSpace(strings.NewReplacer("\n# ", " ", "# ", "").Replace(key.HeadComment))
		if comment == "" && value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			more, err := rowsOf(name+".", value)
			if err != nil {
				return "", err
			}
			rows += more
			continue
		}
		if comment == "" {
			return "", fmt.Errorf("values.yaml:%d: %s has no comment", key.Line, name)
		}
		value.Style |= yaml.FlowStyle
		for _, inner := range value.Content {
			if inner.Kind == yaml.MappingNode || inner.Kind == yaml.SequenceNode {
				inner.Style |= yaml.FlowStyle
			}
		}
		text, err := yaml.Marshal(value)
		if err != nil {
			return "", err
		}
		def := "`" + strings.TrimSpace(string(text)) + "`"
		if value.Tag == "!!null" {
			def = ""
		}
		rows += fmt.Sprintf("| `%s` | %s | %s |\n", name, def, comment)
	}
	return rows, nil
}

// updateReadme writes the table into the chart's README.
func updateReadme() error {
	values, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		return err
	}
	text, err := withTable(string(readme), values)
	if err != nil {
		return err
	}
	return os.WriteFile(chartDir+"/README.md", []byte(text), 0o644)
}
