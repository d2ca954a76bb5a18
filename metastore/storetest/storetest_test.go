package storetest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the stories' effects anew")

func TestStories(t *testing.T) {
	if *update {
		for name, text := range Retell(t, func(*testing.T) Harness { return Model() }) {
			if err := os.WriteFile(filepath.Join("testdata", name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Harness { return Model() })
}
