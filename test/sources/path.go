package sources

import (
	"path/filepath"
	"slices"
	"strings"
)

// Path returns the folders of path that are not below home, each once, in their order. goBin, the folder of the program go, comes first.
//
// Go's test cache repeats each test that looked for a program when PATH differs. The PATH of a user differs from that of CI by folders below the
// home directory, by the order of that of go, and by folders that are there twice.
func Path(path, goBin, home string) string {
	folders := []string{goBin}
	for _, folder := range filepath.SplitList(path) {
		in, err := filepath.Rel(home, folder)
		if !filepath.IsAbs(folder) || err == nil && filepath.IsLocal(in) || slices.Contains(folders, folder) {
			continue
		}
		folders = append(folders, folder)
	}
	return strings.Join(folders, string(filepath.ListSeparator))
}
