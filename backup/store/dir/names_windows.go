package dir

import (
	"errors"
	"os"
)

// renameIfAbsent is for file systems without a second name for a file, such as FAT. Windows has no such call within an os.Root.
func renameIfAbsent(*os.Root, string, string) error { return errors.ErrUnsupported }

// hasTwoNames is for NFS, whose client on Windows makes no second names.
func hasTwoNames(*os.Root, string) bool { return false }

// syncDirectory does nothing: Windows has no call for it. NTFS writes names to its journal.
func syncDirectory(*os.File) error { return nil }
