package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// kind is the configuration of one kind of store.
type kind interface {
	// problems returns what is wrong, as sentences.
	problems() []string
	uri(key string) string
	// secrets returns the paths of mounted Secrets. An empty path is a Secret that is not configured.
	secrets() []string
	// useCredentials returns an error if the kind has no credentials.
	useCredentials(path string, isDir bool) error
}

// kindRow is what package store knows of one kind of store.
type kindRow struct {
	// name of its field in the configuration.
	name string
	// in returns its part of the configuration, or nil.
	in func(Config) kind
	// scheme of its URL, and form of the URL, for errors.
	scheme, form string
	// example of its URL, what the URL can have in addition, and where credentials come from, for the help of a command.
	example, more, credentials string
	// parse reads its URL. env returns a variable of the environment.
	parse func(u *url.URL, env func(string) string) (Config, error)
}

// kindRows are all kinds of stores, in the order of their fields.
var kindRows = []kindRow{s3Row, directoryRow}

// Config describes where backups are and whether they are encrypted. Exactly one kind is set. It has no secrets:
// credentials and keys are in files, which are read each time they are used.
type Config struct {
	S3        *S3        `json:"s3,omitempty"`
	Directory *Directory `json:"directory,omitempty"`
	// ClientEncryption encrypts objects before they are sent; nil means no encryption.
	ClientEncryption *ClientEncryption `json:"clientEncryption,omitempty"`
}

// ClientEncryption configures client-side encryption. Those who can read the store without a key see only names, sizes and
// times.
type ClientEncryption struct {
	// KeysDir is a mounted Secret. Each entry is an age identity. The entry current has the name of the entry that
	// encrypts. KeysDir is read for each object.
	KeysDir string `json:"keysDir"`
}

// kinds returns the kinds that are set, with their names. Without any, names has all kinds.
func (c Config) kinds() (names []string, set []kind) {
	var all []string
	for _, row := range kindRows {
		all = append(all, row.name)
		if k := row.in(c); k != nil {
			names, set = append(names, row.name), append(set, k)
		}
	}
	if len(set) == 0 {
		return all, nil
	}
	return names, set
}

// ParseConfig parses a Config from JSON and validates it. An unknown field is an error, because ignoring one could
// store data unencrypted that should be encrypted.
func ParseConfig(b []byte) (Config, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var c Config
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("%w: configuration of the backup store: %w", ErrInvalid, err)
	}
	if d.More() {
		return Config{}, fmt.Errorf("%w: configuration of the backup store: there is data after the JSON object", ErrInvalid)
	}
	return c, c.Validate()
}

// Validate returns all that is wrong with c as joined sentences, or nil. It sends no request and reads no file.
func (c Config) Validate() error {
	var problems []string
	names, found := c.kinds()
	switch len(found) {
	case 0:
		problems = append(problems, "neither "+strings.Join(names, " nor ")+" is set: set one")
	case 1:
		problems = found[0].problems()
	default:
		problems = append(problems, strings.Join(names, " and ")+" are both set: set only one")
	}
	if c.ClientEncryption != nil {
		problems = absolute(problems, "clientEncryption.keysDir", c.ClientEncryption.KeysDir, true)
	}
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%w: %s", ErrInvalid, p))
	}
	return errors.Join(errs...)
}

func absolute(problems []string, field, path string, required bool) []string {
	switch {
	case path == "" && required:
		return append(problems, field+" is empty: set an absolute path")
	case path != "" && !filepath.IsAbs(path):
		return append(problems, fmt.Sprintf("%s %q is not absolute", field, path))
	}
	return problems
}

// URI returns the URI of a key in the store, for users and their tools. It does not include the endpoint, which is
// part of the configuration.
func (c Config) URI(key string) string {
	if _, found := c.kinds(); len(found) > 0 {
		return found[0].uri(key)
	}
	return ""
}

// Secrets returns the files and directories of mounted Secrets without which the store cannot be used.
func (c Config) Secrets() (paths []string) {
	if _, found := c.kinds(); len(found) > 0 {
		paths = found[0].secrets()
	}
	if c.ClientEncryption != nil {
		paths = append(paths, c.ClientEncryption.KeysDir)
	}
	return slices.DeleteFunc(paths, func(path string) bool { return path == "" })
}

// UseCredentials replaces the credentials in c by those at path, which is a directory like a mounted Secret, or a file.
func (c Config) UseCredentials(path string, isDir bool) error {
	if _, found := c.kinds(); len(found) > 0 {
		return found[0].useCredentials(path, isDir)
	}
	return nil
}

// ParseURL reads the URL of a store. env returns a variable of the environment. The result is not validated.
func ParseURL(raw string, env func(string) string) (Config, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return Config{}, fmt.Errorf("%w: %w; want %s", ErrInvalid, err, URLForms())
	}
	for _, row := range kindRows {
		if row.scheme == u.Scheme {
			return row.parse(u, env)
		}
	}
	return Config{}, fmt.Errorf("%w: %q is not a kind of store; want %s", ErrInvalid, u.Scheme, URLForms())
}

// URLForms returns the form of the URL of each kind of store, separated by commas.
func URLForms() string {
	forms := make([]string, 0, len(kindRows))
	for _, row := range kindRows {
		forms = append(forms, row.form)
	}
	return strings.Join(forms, ", ")
}

// exampleWidth is the width of the column of examples in URLHelp.
const exampleWidth = 42

// URLHelp returns one line about the URL of each kind of store, and what to know about their credentials.
func URLHelp() (urls, credentials string) {
	for _, row := range kindRows {
		urls += fmt.Sprintf("  %-*s %s\n", exampleWidth, row.example, row.more)
		credentials += row.credentials
	}
	return urls, credentials
}
