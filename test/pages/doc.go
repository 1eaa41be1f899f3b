// Package pages reads the commands and the output in pages of the documentation, and runs the commands in a shell.
//
// A story of test/e2e, or a test of test/connect, runs each command of a page as the page has it. This package must not know druid or etcd.
//
// # Blocks
//
// A fenced block of a page has one of these languages:
//
//   - console: a line that begins with "$ " is a command, and the lines below it are its complete output. A line "…" stands
//     for any number of lines. A command that ends in " -w" runs until it has printed what the page shows.
//   - shell: each line is a command. A test only checks that it succeeds.
//   - yaml: an excerpt of a file. A story compares it with the file that a reader has then.
//   - go, python, java, text: a file that the reader writes, or a part of one. Their tests are in test/connect.
//
// A block that no test can run has a comment in the line above it, with the reason: <!-- not run: it needs a cloud -->.
package pages
