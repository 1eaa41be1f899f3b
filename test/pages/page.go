package pages

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// The languages of blocks.
const (
	Console = "console"
	Shell   = "shell"
	YAML    = "yaml"
	Go      = "go"
	Python  = "python"
	Java    = "java"
	Text    = "text"
)

// files are the languages of blocks without commands.
var files = []string{YAML, Go, Python, Java, Text}

// Block is a fenced block of a page.
type Block struct {
	// Line is the number of the line after its fence.
	Line     int
	Language string
	// NotRun is the reason why no test runs the block, or empty.
	NotRun string
	Steps  []Step
	// Text is the content without the indentation of the fence.
	Text string
}

// Step is a command and the output that the page shows.
type Step struct {
	Line    int
	Command string
	// Checked says that the page shows the output. Shown is that output.
	Checked bool
	Shown   []string
}

var (
	opening = regexp.MustCompile("^( *)```([a-z]*)$")
	notRun  = regexp.MustCompile(`^ *<!-- not run: (.+) -->$`)
)

// Read returns the blocks of a page.
func Read(path string) ([]Block, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read page: %w", err)
	}
	blocks, err := Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return blocks, nil
}

// Parse returns the blocks of a page's text. An error begins with the number of the line.
func Parse(text string) (blocks []Block, err error) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if m := notRun.FindStringSubmatch(lines[i]); m != nil && (i+1 == len(lines) || !opening.MatchString(lines[i+1])) {
			return nil, fmt.Errorf("%d: the next line must begin a block", i+1)
		}
		fence := opening.FindStringSubmatch(lines[i])
		if fence == nil {
			continue
		}
		b := Block{Line: i + 2, Language: fence[2]}
		if i > 0 {
			if m := notRun.FindStringSubmatch(lines[i-1]); m != nil {
				b.NotRun = m[1]
			}
		}
		var content []string
		for i++; ; i++ {
			if i == len(lines) {
				return nil, fmt.Errorf("%d: the block does not end", b.Line)
			}
			line := strings.TrimPrefix(lines[i], fence[1])
			if line == "```" {
				break
			}
			content = append(content, line)
		}
		b.Text = strings.Join(content, "\n")
		if b.Steps, err = stepsOf(b, content); err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func stepsOf(b Block, content []string) (steps []Step, err error) {
	switch {
	case slices.Contains(files, b.Language):
		return nil, nil
	case b.Language != Console && b.Language != Shell:
		return nil, fmt.Errorf("%d: the block has the language %q, want %s, %s or one of %q", b.Line, b.Language, Console, Shell, files)
	}
	for i, line := range content {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case b.Language == Shell && isCommand:
			return nil, fmt.Errorf("%d: a command of a %s block begins with $", b.Line+i, Shell)
		case b.Language == Shell:
			steps = append(steps, Step{Line: b.Line + i, Command: line})
		case isCommand:
			steps = append(steps, Step{Line: b.Line + i, Command: command, Checked: true})
		case len(steps) > 0:
			last := &steps[len(steps)-1]
			last.Shown = append(last.Shown, line)
		case b.NotRun == "":
			return nil, fmt.Errorf("%d: the block shows output before its first command", b.Line+i)
		}
	}
	for _, s := range steps {
		if strings.HasSuffix(s.Command, `\`) || strings.TrimSpace(s.Command) == "" {
			return nil, fmt.Errorf("%d: %q is not one command in one line", s.Line, s.Command)
		}
	}
	return steps, nil
}
