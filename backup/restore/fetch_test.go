package restore

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/etcd-druid/druid/backup/readahead"
)

func TestWhatIsWrittenOfADatabase(t *testing.T) {
	t.Parallel()
	torn := errors.New("torn")
	for name, test := range map[string]struct {
		comes int // bytes, before it breaks with err
		says  int64
		err   error
		want  string
		left  int64
	}{
		"nothing":              {},
		"as long as it says":   {comes: 2*chunk + 1, says: 2*chunk + 1, left: 2*chunk + 1},
		"longer by a byte":     {comes: 2*chunk + 1, says: 2 * chunk, want: "longer than the 2097152 bytes", left: 2 * chunk},
		"much longer":          {comes: 9 * chunk, says: chunk, want: "longer than the 1048576 bytes", left: chunk},
		"broken in the middle": {comes: chunk + 1, says: 2 * chunk, err: torn, want: "torn", left: chunk + 1},
		"broken at the start":  {says: 2 * chunk, err: torn, want: "torn"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := os.Create(filepath.Join(t.TempDir(), "db"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var stream io.Reader = bytes.NewReader(make([]byte, test.comes))
			if test.err != nil {
				stream = io.MultiReader(stream, iotest.ErrReader(test.err))
			}
			ahead := readahead.New(chunk, chunks)
			go ahead.Run(t.Context(), stream)
			err = (&Config{}).write(f, ahead, test.says)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("it ends with %v, want %q", err, test.want)
			}
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() != test.left {
				t.Errorf("%d bytes are written, want %d", info.Size(), test.left)
			}
		})
	}
}
