//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-scheduler/carillon/chaos/judge"
)

// conclude passes the records to the judge, and prints its verdict and the figures. The verdict is also written as JSON
// beside the records.
func conclude(records string, least guard) error {
	c, err := judge.Load(records)
	if err != nil {
		return err
	}
	v := judge.Judge(c)
	fmt.Println()
	v.Print(os.Stdout)
	fmt.Printf("\n%-48s %5s %10s %10s %10s\n", "how long", "n", "p50", "max", "goal")
	for _, f := range figures(c) {
		fmt.Println(f)
	}
	fmt.Println()
	w, err := os.Create(filepath.Join(filepath.Dir(records), "verdict.json"))
	if err != nil {
		return err
	}
	if err := errors.Join(v.PrintJSON(w), w.Close()); err != nil {
		return err
	}
	meant := 0
	for i := range c.Faults {
		if c.Faults[i].Note != byItself {
			meant++
		}
	}
	switch {
	case !v.Pass:
		return fmt.Errorf("broken: %s", strings.Join(v.Broken(), ", "))
	case v.Dues < least.dues:
		return fmt.Errorf("only %d due times: want at least %d", v.Dues, least.dues)
	case meant < least.faults:
		return fmt.Errorf("only %d faults: want at least %d", meant, least.faults)
	}
	return nil
}
