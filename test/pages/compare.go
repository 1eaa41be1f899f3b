package pages

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// anyLines in shown output stands for any number of lines.
const anyLines = "…"

// What differs from run to run, and what takes its place in a comparison.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	// An age, as kubectl prints it: 7s, 3m12s, 2d.
	{regexp.MustCompile(`(^| )([0-9]+[dhms])+($| )`), "${1}<age>${3}"},
	// The name of a volume that a provisioner made.
	{regexp.MustCompile(`\bpvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "<volume>"},
	// An ID of etcd: at most 16 hexadecimal digits. etcd prints no zeros at the begin.
	{regexp.MustCompile(`\b[0-9a-f]{12,16}\b`), "<id>"},
	// A generated name: Kubernetes and druid append five characters of this alphabet.
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "-<random>"},
}

// header is the first line of a table of kubectl.
var header = regexp.MustCompile(`^[A-Z]+( [A-Z]+)+$`)

// Compare returns an error with both texts if the printed output is not what a page shows. It compares line by line, except:
//
//   - any spaces are like one space, and spaces at the end of a line do not count;
//   - an age, such as 3m12s, is like any other age;
//   - an ID of 12 to 16 hexadecimal digits is like any other ID;
//   - the name of a volume that a provisioner made, pvc- and a UID, is like any other such name;
//   - a generated suffix of a name, such as that of demo-qtd87, is like any other suffix;
//   - the rows of a table may have another order, unless the page leaves some out;
//   - a shown line "…" stands for any number of lines.
func Compare(shown, printed []string) error {
	want, got := normal(shown), normal(printed)
	if len(want) > 0 && header.MatchString(want[0]) && !slices.Contains(want, anyLines) {
		slices.Sort(want[1:])
		slices.Sort(got[min(1, len(got)):])
	}
	if matches(want, got) {
		return nil
	}
	return fmt.Errorf("the page shows\n\t%s\nand the command printed\n\t%s", strings.Join(shown, "\n\t"), strings.Join(printed, "\n\t"))
}

// normal is the form of lines in which they are compared.
func normal(lines []string) []string {
	out := make([]string, 0, len(lines))
	for _, line := range lines {
		line = strings.Join(strings.Fields(line), " ")
		for _, v := range volatile {
			line = v.pattern.ReplaceAllString(line, v.instead)
		}
		out = append(out, line)
	}
	return out
}

func matches(shown, printed []string) bool {
	switch {
	case len(shown) == 0:
		return len(printed) == 0
	case shown[0] == anyLines:
		return matches(shown[1:], printed) || len(printed) > 0 && matches(shown, printed[1:])
	default:
		return len(printed) > 0 && shown[0] == printed[0] && matches(shown[1:], printed[1:])
	}
}
