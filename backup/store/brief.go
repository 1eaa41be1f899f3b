package store

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Brief returns the text of an error without what differs between two attempts that fail equally: the ID of a request, the address and
// the port of a connection, the name of a new object. An agent reports it, so that a report stays the same while a store fails. Error has
// all of it, for logs.
func Brief(err error) string {
	if err == nil {
		return ""
	}
	if text, ok := briefOf(err); ok {
		return text
	}
	text := err.Error()
	for _, part := range partsOf(err) {
		if whole := part.Error(); whole != "" {
			text = strings.ReplaceAll(text, whole, Brief(part))
		}
	}
	return text
}

// briefOf returns the text of an error whose own text has what differs. An error of a store has a method for it.
func briefOf(err error) (text string, known bool) {
	switch e := err.(type) { //nolint:errorlint // Brief goes through the tree itself
	case interface{ Brief() string }:
		return e.Brief(), true
	case *url.Error: // the path can have the name of a new object, and the query the ID of an upload
		return e.Op + " " + hostOf(e.URL) + ": " + Brief(e.Err), true
	case *net.OpError: // a host can have several addresses
		return (&net.OpError{Op: e.Op, Net: e.Net, Err: errors.New(Brief(e.Err))}).Error(), true
	case *net.DNSError: // its Err is the text of an OpError, or has no colon
		return (&net.DNSError{Err: strings.TrimSpace(e.Err[strings.LastIndex(e.Err, ": ")+1:]), Name: e.Name, Server: e.Server}).Error(), true
	case *os.LinkError: // of a temporary file to an object
		return e.Op + ": " + Brief(e.Err), true
	default:
		return "", false
	}
}

// partsOf returns the errors that an error wraps.
func partsOf(err error) []error {
	switch e := err.(type) { //nolint:errorlint // Brief goes through the tree itself
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Unwrap() error }:
		return slices.DeleteFunc([]error{e.Unwrap()}, func(part error) bool { return part == nil })
	default:
		return nil
	}
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a URL"
	}
	return u.Scheme + "://" + u.Host
}

// callError is the failure of a call of a store.
type callError struct {
	verb, key string
	in        Store
	error
}

// Failed adds to an error which call for which key of a store failed.
func Failed(verb, key string, in Store, err error) error { return callError{verb, key, in, err} }

func (e callError) Error() string {
	return fmt.Sprintf("%s %s in %s: %s", e.verb, e.key, e.in, e.error)
}

func (e callError) Unwrap() error { return e.error }

// newObjects are the calls that are about an object that does not exist yet. Its name has the time of the attempt.
var newObjects = []string{"put", "look up", "abort the upload of"}

// Brief does not name a new object, only what it is below.
func (e callError) Brief() string {
	text := fmt.Sprintf("%s %s in %s: %s", e.verb, e.key, e.in, Brief(e.error))
	if i := strings.LastIndex(e.key, "/"); i >= 0 && slices.Contains(newObjects, e.verb) {
		return strings.ReplaceAll(text, e.key, e.key[:i+1]+"…")
	}
	return text
}
