// Package readahead reads a stream while what came of it before is worked on, within memory that is given at the start.
//
// It ends with the stream or with a context, and never takes a stream that broke for one that ended.
package readahead
