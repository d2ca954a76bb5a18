package disk

import (
	"errors"
	"os"
	"time"
)

// ErrInUse is the error of Lock about a file that another process has locked.
var ErrInUse = errors.New("it is in use by another process")

// Lock locks a file until it is closed. It waits for another process only so long.
func Lock(f *os.File, patience time.Duration) error {
	for until := time.Now().Add(patience); ; time.Sleep(patience / 10) {
		if err := tryLock(f); !errors.Is(err, errLocked) {
			return err
		}
		if time.Now().After(until) {
			return ErrInUse
		}
	}
}
