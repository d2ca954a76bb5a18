package backup

import (
	"context"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// state is content of a store's own row alone.
type state struct{ kernel.StoreRow }

func (s state) Rows(context.Context) iter.Seq2[kernel.Row, error] {
	return func(yield func(kernel.Row, error) bool) { yield(&s.StoreRow, nil) }
}

func (state) Ended(context.Context) iter.Seq2[*kernel.Run, error] {
	return func(func(*kernel.Run, error) bool) {}
}

func (state) Lines(context.Context) iter.Seq2[metastore.LogLine, error] {
	return func(func(metastore.LogLine, error) bool) {}
}

// A backup names the version of the rules that was in force, and a program that does not know it reads nothing of it.
func TestNewerRulesAreRefused(t *testing.T) {
	for version, want := range map[uint32]error{0: nil, kernel.ApplyVersion: nil, kernel.ApplyVersion + 1: metastore.ErrTooOld} {
		f, err := Save(t.Context(), filepath.Join(t.TempDir(), "backup"), func(to io.Writer) error {
			_, err := Write(t.Context(), to, Head{At: time.Now()}, state{kernel.StoreRow{ApplyVersion: version}})
			return err
		})
		if !errors.Is(err, want) {
			t.Errorf("of version %d: %v", version, err)
		}
		if err == nil && f.ApplyVersion != max(version, kernel.FirstApplyVersion) {
			t.Errorf("of version %d: the head has %d", version, f.ApplyVersion)
		}
	}
}
