package main

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// entry is a file or a folder in an archive or a layer. All of them get the same time.
type entry struct {
	name string // a folder ends in /
	mode fs.FileMode
	user int // number of user and group; 0: root
	data []byte
}

// writeArchive writes a program and its texts as name.tar.gz, or for Windows as name.zip.
func writeArchive(name string, p built, texts []text, when time.Time) error {
	program, err := os.ReadFile(p.file)
	if err != nil {
		return err
	}
	folder := filepath.Base(name)
	entries := []entry{
		{name: folder + "/", mode: 0o755},
		{name: path.Join(folder, p.program()), mode: 0o755, data: program},
	}
	for _, t := range texts {
		entries = append(entries, entry{name: path.Join(folder, t.name), mode: 0o644, data: t.data})
	}
	if p.os == "windows" {
		return write(name+".zip", func(w io.Writer) error { return writeZip(w, entries, when) })
	}
	return write(name+".tar.gz", func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		if err := writeTar(z, entries, when); err != nil {
			return err
		}
		return z.Close()
	})
}

func writeTar(to io.Writer, entries []entry, when time.Time) error {
	w := tar.NewWriter(to)
	for _, e := range entries {
		head := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.data)),
			Uid: e.user, Gid: e.user, ModTime: when, Format: tar.FormatUSTAR}
		if e.mode&fs.ModeSticky != 0 {
			head.Mode |= 0o1000
		}
		if e.name[len(e.name)-1] == '/' {
			head.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(head); err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeZip(to io.Writer, entries []entry, when time.Time) error {
	w := zip.NewWriter(to)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestCompression)
	})
	for _, e := range entries {
		head := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: when}
		if e.name[len(e.name)-1] == '/' {
			head.Method = zip.Store
			head.SetMode(e.mode | fs.ModeDir)
		} else {
			head.SetMode(e.mode)
		}
		f, err := w.CreateHeader(head)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.data); err != nil {
			return err
		}
	}
	return w.Close()
}
