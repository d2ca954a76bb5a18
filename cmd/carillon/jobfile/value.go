package jobfile

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// parseValue converts the YAML of a field to a value that encoding/json writes as the same JSON.
func parseValue(n *yaml.Node) (any, error) {
	var v any
	if err := n.Decode(&v); err != nil { // bounds aliases, which the decoders of exact do not
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if _, err := json.Marshal(v); err != nil {
		return nil, errors.New("cannot be sent as JSON: keys must be strings, and numbers finite")
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t, isTime := v.(time.Time); isTime {
		if strings.ContainsAny(strings.ToUpper(n.Value)[8:], "Z+-") {
			return t, nil
		}
		if len(n.Value) == len(time.DateOnly) {
			return n.Value, nil // the server knows what a day means
		}
		return t.Format("2006-01-02T15:04:05"), nil // without an offset: YAML takes it for UTC, and the server for the job's zone
	}
	var e exact
	err := n.Decode(&e)
	return e.value, err
}

// exact is a value as it is written: YAML itself makes a float64 of 0.10, text of 1e999, and midnight in UTC of a date.
type exact struct{ value any }

// UnmarshalYAML is called for all but null.
func (e *exact) UnmarshalYAML(n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		fields := map[string]exact{}
		e.value = fields
		return n.Decode(&fields)
	case yaml.SequenceNode:
		items := []*exact{} // pointers, since YAML drops nulls from a list of other values
		err := n.Decode(&items)
		e.value = items
		return err
	}
	if err := n.Decode(&e.value); err != nil {
		return err
	}
	_, isFloat := e.value.(float64)
	_, isTime := e.value.(time.Time)
	switch number := respelt(n.Value); {
	case n.Style == 0 && jsonNumber.MatchString(n.Value):
		e.value = json.Number(n.Value)
	case isFloat && jsonNumber.MatchString(number):
		e.value = json.Number(number)
	case isTime:
		e.value = n.Value
	}
	return nil
}

// MarshalJSON writes the value.
func (e exact) MarshalJSON() ([]byte, error) { return json.Marshal(e.value) }

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// respelt returns a float such as +1_000.5 or .5 as JSON spells it.
func respelt(float string) string {
	float = strings.TrimPrefix(strings.ReplaceAll(float, "_", ""), "+")
	sign, digits := "", float
	if rest, negative := strings.CutPrefix(float, "-"); negative {
		sign, digits = "-", rest
	}
	if strings.HasPrefix(digits, ".") {
		digits = "0" + digits
	}
	return sign + strings.TrimSuffix(digits, ".")
}
