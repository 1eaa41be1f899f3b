package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"time"
)

// The modes of files in archives and layers.
const (
	plainMode   = 0o644
	programMode = 0o755
)

// entry is a file of an archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// writeTar writes the files in their order, all with one time and without an owner.
func writeTar(w io.Writer, at time.Time, entries []entry) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: at}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// writeTarGzip writes no name and no time into the header of gzip.
func writeTarGzip(w io.Writer, at time.Time, entries []entry) error {
	compressed := gzip.NewWriter(w)
	if err := writeTar(compressed, at, entries); err != nil {
		return err
	}
	return compressed.Close()
}

func writeZip(w io.Writer, at time.Time, entries []entry) error {
	archive := zip.NewWriter(w)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		if e.mode == programMode {
			header.SetMode(programMode)
		} else {
			header.SetMode(plainMode)
		}
		file, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(e.content); err != nil {
			return err
		}
	}
	return archive.Close()
}
