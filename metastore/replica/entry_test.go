package replica

import (
	"bytes"
	"errors"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// An entry that this program cannot read in full is refused by name, before anything is applied.
func TestEntryOfNewerProgram(t *testing.T) {
	entry := func() []byte {
		return AppendEntry(nil, kernel.FirstApplyVersion, []kernel.Envelope{{Tenant: "t", Actor: "person:ann", Command: kernel.Pause{Key: "k"}}})
	}
	for what, test := range map[string]struct {
		spoil func(b []byte) []byte
		want  error
	}{
		"rules":  {func(b []byte) []byte { return sealEntry(b, entryCommit, kernel.ApplyVersion+1) }, metastore.ErrTooOld},
		"a kind": {func(b []byte) []byte { return sealEntry(b, entryTerm+1, 1) }, ErrEntryVersion},
		"a form": {func(b []byte) []byte { b[0] = entryVersion + 1; return b }, ErrEntryVersion},
	} {
		b := test.spoil(entry())
		if err := CheckEntry(b, kernel.ApplyVersion); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	b := entry()
	for i := range b {
		hurt := bytes.Clone(b)
		hurt[i] ^= 1
		if CheckEntry(hurt, kernel.ApplyVersion) == nil {
			t.Errorf("a bit of byte %d may change", i)
		}
	}
}
