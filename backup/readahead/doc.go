// Package readahead reads a stream ahead of its use, within a given amount of memory.
//
// It ends with the stream or with a context, and never takes a broken stream for one that ended.
package readahead
