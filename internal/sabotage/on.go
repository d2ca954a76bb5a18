//go:build sabotage

package sabotage

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// off are the mechanisms that this process does without.
var off = func() map[Mechanism]bool {
	m := map[Mechanism]bool{}
	for _, name := range strings.Split(os.Getenv("CARILLON_SABOTAGE"), ",") {
		if name == "" {
			continue
		}
		if !slices.Contains(All(), Mechanism(name)) {
			panic(fmt.Sprintf("CARILLON_SABOTAGE: unknown mechanism %q", name))
		}
		m[Mechanism(name)] = true
	}
	return m
}()

// Off reports whether a mechanism is off.
func Off(m Mechanism) bool { return off[m] }
