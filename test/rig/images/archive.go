package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"time"
)

// epoch is the time of all files and images, so that equal content gives equal
// archives.
var epoch = time.Unix(0, 0).UTC()

// File is a file of an image.
type File struct {
	// Path is where it is in the image, Source where its content is now.
	Path, Source string
}

// Spec describes an image with one layer.
type Spec struct {
	Ref        string
	Entrypoint []string
	Cmd        []string
	// User runs the container unless the Pod says otherwise.
	User  string
	Env   []string
	Files []File
	// Dirs are made although no file is in them.
	Dirs []string
}

// passwd holds the users that distroless images have.
const passwd = "root:x:0:0:root:/root:/sbin/nologin\n" +
	"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
	"nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"

const group = "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"

// Write writes the image as an archive that `ctr images import` and `docker
// load` read.
func Write(w io.Writer, s Spec) error {
	layer, err := layer(s)
	if err != nil {
		return fmt.Errorf("image %s: %w", s.Ref, err)
	}
	layerSum := fmt.Sprintf("%x", sha256.Sum256(layer))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "created": epoch,
		"config": map[string]any{"Entrypoint": s.Entrypoint, "Cmd": s.Cmd, "User": s.User, "Env": s.Env},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerSum}},
	})
	if err != nil {
		return fmt.Errorf("image %s: %w", s.Ref, err)
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	layerName := layerSum + "/layer.tar"
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": configName, "RepoTags": []string{s.Ref}, "Layers": []string{layerName},
	}})
	if err != nil {
		return fmt.Errorf("image %s: %w", s.Ref, err)
	}
	tw := tar.NewWriter(w)
	for _, f := range []struct {
		name    string
		content []byte
	}{{configName, config}, {layerName, layer}, {"manifest.json", manifest}} {
		if err := add(tw, f.name, 0o644, f.content); err != nil {
			return fmt.Errorf("image %s: %w", s.Ref, err)
		}
	}
	return tw.Close()
}

// layer is the image's file system as a tar archive.
func layer(s Spec) ([]byte, error) {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	made := map[string]bool{"/": true}
	dirs := append([]string{"/etc", "/tmp"}, s.Dirs...)
	for _, f := range s.Files {
		dirs = append(dirs, path.Dir(f.Path))
	}
	for _, d := range dirs {
		if err := mkdir(tw, made, d); err != nil {
			return nil, err
		}
	}
	if err := add(tw, "etc/passwd", 0o644, []byte(passwd)); err != nil {
		return nil, err
	}
	if err := add(tw, "etc/group", 0o644, []byte(group)); err != nil {
		return nil, err
	}
	for _, f := range s.Files {
		content, err := os.ReadFile(f.Source)
		if err != nil {
			return nil, err
		}
		if err := add(tw, strings.TrimPrefix(f.Path, "/"), 0o755, content); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// mkdir adds a directory and its parents once.
func mkdir(tw *tar.Writer, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := mkdir(tw, made, path.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	mode := int64(0o755)
	if dir == "/tmp" {
		mode = 0o1777
	}
	return tw.WriteHeader(&tar.Header{
		Name: strings.TrimPrefix(dir, "/") + "/", Typeflag: tar.TypeDir, Mode: mode, ModTime: epoch,
	})
}

func add(tw *tar.Writer, name string, mode int64, content []byte) error {
	err := tw.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: epoch})
	if err != nil {
		return err
	}
	_, err = tw.Write(content)
	return err
}
