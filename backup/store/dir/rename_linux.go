package dir

import (
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// renameIfAbsent gives tmp the name key, unless something has it: that is EEXIST.
func renameIfAbsent(root *os.Root, tmp, key string) error {
	d, err := root.Open(path.Dir(key))
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Renameat2(int(d.Fd()), path.Base(tmp), int(d.Fd()), path.Base(key), unix.RENAME_NOREPLACE)
}
