package httpjob

import (
	"encoding/json"
	"testing"
)

// The answers that a later attempt finds in the saved state have the digits that came: they go into its requests.
func TestSavedNumbersKeepTheirDigits(t *testing.T) {
	answer := `{"list":[9007199254740993,123456789012345678901234567890,0.10,-0,1E5]}`
	saved, err := json.Marshal(state{Named: map[string]any{"A": parsed([]byte(answer))}, Responses: []any{parsed([]byte(answer))}})
	if err != nil {
		t.Fatal(err)
	}
	var s state
	if err := json.Unmarshal(saved, &s); err != nil {
		t.Fatal(err)
	}
	if named, response := string(asJSON(s.Named["A"])), string(asJSON(s.Responses[0])); named != answer || response != answer {
		t.Errorf("they become %s and %s, want %s", named, response, answer)
	}
}
