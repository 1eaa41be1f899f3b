package ui

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/situations"
	"github.com/etcd-druid/druid/test/ui/browser"
)

var screenshots = flag.Bool("screenshots", false, "write the screenshots of the documentation again")

const (
	docs   = "../../docs"
	images = docs + "/images"
	// sheet is the style of the page: a change of it changes the screenshots.
	sheet = "../../internal/webui/assets/page.css"
	// maxImage is the size of a screenshot in bytes, so that a page of the documentation loads fast.
	maxImage = 150_000
	// scale is pixels of a screenshot in one CSS pixel, for screens with a high density.
	scale = 1.5
)

// shots are the screenshots of the documentation. The height ends with an element.
var shots = []struct {
	file, path, scheme string
	last               string
	// in is the page of the documentation that shows it.
	in string
}{
	{"web-page-list.png", "/", "light", "#read", "how-to/run/web-page.md"},
	{"web-page-cluster.png", "/clusters/orders/demo", "light", "#members", "how-to/run/web-page.md"},
	{"web-page-cluster-dark.png", "/clusters/default/demo", "dark", "#certificates", "how-to/run/web-page.md"},
	{"web-page-timeline.png", "/clusters/default/demo/backups?at=2026-11-20T10:30", "light", "#lineages", "how-to/run/web-page.md"},
}

// fleet are the clusters in the screenshots: some situations, each in a namespace with the name of an application.
func fleet() *source {
	namespaces := map[string]string{
		"quorum-lost-with-a-plan": "orders", "backups-failing": "search", "member-down": "catalog", "scaling-up": "payments", "serving": "default", "tls": "accounts",
	}
	s := &source{}
	for _, one := range situations.All() {
		namespace, ok := namespaces[one.Name]
		if !ok {
			continue
		}
		c := &one.Objects.Cluster
		c.Namespace = namespace
		for i, url := range c.Status.Endpoints {
			c.Status.Endpoints[i] = strings.Replace(url, ".default.", "."+namespace+".", 1)
		}
		s.clusters = append(s.clusters, view.Of(one.Objects, situations.Now))
	}
	view.Sort(s.clusters)
	return s
}

// A screenshot has the digest of the text and of the style that it shows, so that the test fails when the page changes.
func TestScreenshotsShowThePageAsItIs(t *testing.T) {
	style, err := os.ReadFile(sheet)
	if err != nil {
		t.Fatal(err)
	}
	p := visit(t, fleet())
	for _, shot := range shots {
		p.Look(middle, shot.scheme)
		p.Open(shot.path)
		p.Eventually(`!document.body.dataset.live || document.getElementById("live").textContent === "Live"`)
		text := browser.Eval[string](p.Tab, `document.body.innerText`)
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte(text+string(style))))
		path := filepath.Join(images, shot.file)
		if *screenshots {
			height := int64(browser.Eval[float64](p.Tab, fmt.Sprintf(`Math.ceil(document.querySelector(%q).getBoundingClientRect().bottom + scrollY) + 16`, shot.last)))
			p.Do(chromedp.EmulateViewport(middle, height, chromedp.EmulateScale(scale)))
			taken, err := browser.Get(p.Tab, page.CaptureScreenshot, page.CaptureScreenshotParams{})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, small(t, taken.Data, digest), 0o644); err != nil { //nolint:gosec // a file of the documentation
				t.Fatal(err)
			}
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%v: run make screenshots", err)
			continue
		}
		if len(raw) > maxImage {
			t.Errorf("%s has %d bytes, want at most %d", shot.file, len(raw), maxImage)
		}
		if !bytes.Contains(raw, []byte(digest)) {
			t.Errorf("%s does not show the page as it is: run make screenshots, and look at it", shot.file)
		}
		about, err := os.ReadFile(filepath.Join(docs, shot.in))
		if err != nil {
			t.Fatal(err)
		}
		if before, _, ok := strings.Cut(string(about), "](../../images/"+shot.file+")"); !ok || strings.HasSuffix(before, "![") {
			t.Errorf("%s does not show %s with a text in its place", shot.in, shot.file)
		}
	}
}

// small is a PNG with at most 256 colors and a text. Of more colors, the most frequent ones stay.
func small(t *testing.T, raw []byte, text string) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.RGBA]int{}
	bounds := from.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	var frequent []color.RGBA
	for c := range counts {
		frequent = append(frequent, c)
	}
	slices.SortFunc(frequent, func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	var palette color.Palette
	for _, c := range frequent[:min(256, len(frequent))] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for c := range counts {
		index[c] = uint8(palette.Index(c)) //nolint:gosec // a palette has at most 256 colors
	}
	to := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			to.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return withText(out.Bytes(), text)
}

// withText adds a text before the last chunk of a PNG, which has 12 bytes (PNG, third edition: 11.2.5 and 11.3.3).
func withText(raw []byte, text string) []byte {
	const end = 12
	chunk := append([]byte("tEXt"), "Description\x00"+text...)
	added := binary.BigEndian.AppendUint32(nil, uint32(len(chunk)-4)) //nolint:gosec // it is short
	added = append(added, chunk...)
	added = binary.BigEndian.AppendUint32(added, crc32.ChecksumIEEE(chunk))
	return slices.Concat(raw[:len(raw)-end], added, raw[len(raw)-end:])
}
