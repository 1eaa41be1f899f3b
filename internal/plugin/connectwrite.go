package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// envFile has the variables of etcdctl.
const envFile = "etcdctl.env"

// certificateKeys are the keys of a Secret for clients, and the names of the files.
var certificateKeys = []string{"ca.crt", "tls.crt", "tls.key"}

// writtenFile is a file for a client.
type writtenFile struct {
	name    string
	content []byte
}

// writeConnection writes the certificates and the variables of etcdctl into a directory, and returns the paths. It writes nothing if one
// of the files exists with another content.
func (k *kube) writeConnection(ctx context.Context, d connectionData, dir string) (paths []string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("find the directory of --write: %w", err)
	}
	files, err := k.connectionFiles(ctx, d, dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		has, err := os.ReadFile(filepath.Join(dir, f.name)) //nolint:gosec // the user names the directory
		switch {
		case err == nil && !bytes.Equal(has, f.content):
			return nil, fmt.Errorf("%s exists with another content, and connect overwrites no file. Nothing was written. Remove it, or name another directory",
				filepath.Join(dir, f.name))
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("read a file of the directory of --write: %w. Nothing was written", err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of --write: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := writeNew(path, f.content); err != nil {
			return paths, fmt.Errorf("write %s: %w", path, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// writeNew creates a file that only its owner may read. A file that exists has the same content, and gets the same mode.
func writeNew(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names the directory
	if errors.Is(err, fs.ErrExist) {
		return os.Chmod(path, 0o600)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// connectionFiles are the files for a client: the variables of etcdctl, and the certificates if druid issues them.
func (k *kube) connectionFiles(ctx context.Context, d connectionData, dir string) (files []writtenFile, err error) {
	if d.TLS && d.Secret == "" {
		return nil, errors.New("write the certificates: druid issues none for clients of this EtcdCluster. Use those that you issued")
	}
	if d.TLS {
		secret, err := k.typed.CoreV1().Secrets(d.Namespace).Get(ctx, d.Secret, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("get Secret %s/%s: %w", d.Namespace, d.Secret, err)
		}
		for _, key := range certificateKeys {
			if len(secret.Data[key]) == 0 {
				return nil, fmt.Errorf("read Secret %s/%s: it has no %s yet. druid writes it when it has issued the certificate", d.Namespace, d.Secret, key)
			}
			files = append(files, writtenFile{key, secret.Data[key]})
		}
	}
	return append(files, writtenFile{envFile, []byte(strings.Join(d.exports(dir), "\n") + "\n")}), nil
}

// etcdctlVariable is an environment variable.
type etcdctlVariable struct{ name, value string }

// variables are those of etcdctl. The endpoint is that of the port-forward. Certificates that a user issued have no variables.
func (d connectionData) variables(dir string) []etcdctlVariable {
	all := []etcdctlVariable{{"ETCDCTL_ENDPOINTS", d.endpoint}}
	if d.TLS && d.Secret != "" {
		for i, name := range []string{"ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY"} {
			all = append(all, etcdctlVariable{name, filepath.Join(dir, certificateKeys[i])})
		}
	}
	return all
}

// exports are the lines for a shell that set the variables of etcdctl.
func (d connectionData) exports(dir string) []string {
	var lines []string
	for _, v := range d.variables(dir) {
		lines = append(lines, "export "+v.name+"="+quoted(v.value))
	}
	return lines
}
