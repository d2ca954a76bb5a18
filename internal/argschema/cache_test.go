package argschema

import "testing"

// While a large schema of one app is compiled, the arguments of other jobs are checked.
func TestCompilingHoldsUpNoOtherSchema(t *testing.T) {
	const greedy, modest = `{"type": "array"}`, `{"type": "object"}`
	var c Cache
	c.by = map[string]func() func([]byte) (string, error){greedy: func() func([]byte) (string, error) {
		if !c.mu.TryLock() {
			t.Error("a schema is compiled under the lock that all checks need")
			return accept
		}
		c.mu.Unlock()
		if c.Check([]byte(modest), []byte(`[]`)) == nil {
			t.Error("arguments that do not fit their schema are accepted")
		}
		return Checker([]byte(greedy))
	}}
	if err := c.Check([]byte(greedy), []byte(`[]`)); err != nil {
		t.Error(err)
	}
}
