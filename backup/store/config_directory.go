package store

import (
	"fmt"
	"net/url"
	"path"
)

// Directory is a store in a file system that all agents of the cluster mount.
type Directory struct {
	// Path is absolute and must exist. It is never created, because the volume may just not be mounted.
	Path string `json:"path"`
}

var directoryRow = kindRow{
	name: "directory",
	in: func(c Config) kind {
		if c.Directory == nil {
			return nil
		}
		return c.Directory
	},
	scheme: "dir", form: "dir:///path",
	example: "dir:///mnt/backups", more: "an existing directory",
	parse: parseDirectoryURL,
}

func (d *Directory) problems() []string { return absolute(nil, "directory.path", d.Path, true) }

func (d *Directory) uri(key string) string { return "dir://" + path.Join(d.Path, key) }

func (d *Directory) secrets() []string { return nil }

func (d *Directory) useCredentials(string, bool) error {
	return fmt.Errorf("%w: a directory needs no credentials", ErrInvalid)
}

func parseDirectoryURL(u *url.URL, _ func(string) string) (Config, error) {
	if u.Host != "" || u.RawQuery != "" {
		return Config{}, fmt.Errorf("%w: %q is not a directory; write an absolute path with three slashes, dir:///path, and without parameters",
			ErrInvalid, u.String())
	}
	return Config{Directory: &Directory{Path: u.Path}}, nil
}
