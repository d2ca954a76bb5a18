package jobfile

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Calendar is a calendar of a file, in the API's form, with its position.
type Calendar struct {
	Name        string   `yaml:"name" json:"name"`
	Description string   `yaml:"description" json:"description,omitempty"`
	Zone        string   `yaml:"zone" json:"zone,omitempty"`
	Rules       []string `yaml:"rules" json:"rules"`
	Place       string   `yaml:"-" json:"-"`
}

// calendarFields are what a calendar may have.
var calendarFields = map[string]bool{"name": true, "description": true, "zone": true, "rules": true}

// Calendars parses the calendars of a file. Parse reports mistakes in its jobs.
func Calendars(file string, raw []byte) (list []Calendar, err error) {
	if file == Piped {
		file = "(stdin)"
	}
	seen := map[string]string{}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var doc yaml.Node
		if err := d.Decode(&doc); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, misread(file, &doc, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
			continue
		}
		top := doc.Content[0]
		for i := 0; i+1 < len(top.Content); i += 2 {
			if top.Content[i].Value != "calendars" {
				continue
			}
			value := top.Content[i+1]
			if value.Kind != yaml.SequenceNode {
				return nil, misread(file, value, "calendars: is a list, each item with a name")
			}
			for _, item := range value.Content {
				c, err := calendar(file, item)
				if err != nil {
					return nil, err
				}
				if first, twice := seen[c.Name]; twice {
					return nil, misread(file, item, "calendar %.60q is already in %s", c.Name, first)
				}
				seen[c.Name] = c.Place
				list = append(list, c)
			}
		}
	}
}

func calendar(file string, n *yaml.Node) (c Calendar, err error) {
	if n.Kind != yaml.MappingNode {
		return c, misread(file, n, "want a calendar: fields, the first of them its name")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i]; !calendarFields[name.Value] {
			return c, misread(file, name, "a calendar has no field %.40q; it has name, description, zone and rules", name.Value)
		}
	}
	if err := n.Decode(&c); err != nil {
		return c, misread(file, n, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if c.Name == "" {
		return c, misread(file, n, "a calendar without a name")
	}
	if c.Rules == nil {
		c.Rules = []string{}
	}
	c.Place = fmt.Sprintf("%s:%d", file, n.Line)
	return c, nil
}
