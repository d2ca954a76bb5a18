package schedule

import (
	"archive/zip"
	_ "embed"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// zoneinfo is the IANA time zone database, edition 2025c, as Go 1.26 ships it in lib/time. It is in the public
// domain.
//
// Machines have editions of their own, and two nodes with different ones would disagree about due times after a
// government has moved its clocks. So no other copy is used: neither the machine's nor Go's time/tzdata, because
// time.LoadLocation prefers the machine's. A file system would also offer "posix/Japan", "right/Japan" (whose clock is
// 27 seconds off) and, where it ignores case, "japan".
//
//go:embed zoneinfo.zip
var zoneinfo string

// database finds the zones in zoneinfo by their names.
var database = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(strings.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic("schedule: the time zone database in this program is broken: " + err.Error())
	}
	zones := make(map[string]*zip.File, len(archive.File))
	for _, file := range archive.File {
		if !file.FileInfo().IsDir() {
			zones[file.Name] = file
		}
	}
	return zones
})

// readLocation reads a zone of the database.
func readLocation(name string, file *zip.File) (*time.Location, error) {
	r, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(name, data)
}

// Zones returns the names of all time zones of schedules, sorted.
func Zones() []string { return slices.Sorted(maps.Keys(database())) }
