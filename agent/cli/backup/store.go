package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
)

// forms lists the forms of --store for errors.
var forms = "want " + store.URLForms() + ", or the path of a JSON file with the store's configuration"

// location is where a store is, as passed on the command line.
type location struct {
	store, credentials string
	// agentConfig is the configuration file of an agent, whose store and prefix apply instead.
	agentConfig string
	// keys is a directory or noKeys. If it is empty, the file with the configuration decides.
	keys   string
	prefix string
}

// useAgentConfig takes the store and the prefix from the configuration file of an agent. The paths in it are those of the container of that
// agent.
func (l *location) useAgentConfig() error {
	if l.store != "" || l.prefix != "" || l.credentials != "" {
		return errors.New("--agent-config has the store, its credentials and the prefix; remove --store, --credentials and --prefix")
	}
	// A missing file has no backups. Here it is more likely that this is not the container of an agent.
	if _, err := os.Stat(l.agentConfig); err != nil {
		return fmt.Errorf("--agent-config: %w; run the command in the container of an agent", err)
	}
	r, err := config.ReadReloadable(l.agentConfig)
	switch {
	case err != nil:
		return fmt.Errorf("--agent-config: %w", err)
	case r.Backup == nil:
		return fmt.Errorf("--agent-config: %s has no backup store: set spec.backup of the EtcdCluster. A change needs up to a minute to arrive", l.agentConfig)
	}
	l.store, l.prefix = string(r.Backup.Store), r.Backup.Prefix
	return nil
}

// bindAgentConfig adds --agent-config to a command that only reads.
func (l *location) bindAgentConfig(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&l.agentConfig, "agent-config", "",
		"configuration `file` of an agent, in its container: "+config.ConfigDir+"/"+config.ConfigFile+". It replaces --store, --credentials and --prefix")
	return cmd
}

// noKeys replaces the directory of keys to write objects unencrypted.
const noKeys = "none"

// open opens the store. Its errors name the flag.
func (l location) open(ctx context.Context, flag string) (store.Store, error) {
	c, err := l.config(flag)
	if err != nil {
		return nil, err
	}
	if err := store.CheckPrefix(l.prefix); err != nil {
		return nil, fmt.Errorf("the prefix of --%s: %w", flag, err)
	}
	if strings.HasSuffix(l.prefix, "/") {
		return nil, fmt.Errorf("the prefix of --%s: %w: %q ends in a slash; remove the slash", flag, store.ErrInvalid, l.prefix)
	}
	s, err := open.Open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return s, nil
}

// config returns the configuration of the store to open. Its errors name the flag.
func (l location) config(flag string) (store.Config, error) {
	c, err := parseStore(l.store, l.credentials)
	if err != nil {
		return store.Config{}, fmt.Errorf("--%s: %w", flag, err)
	}
	switch l.keys {
	case "":
		return c, nil
	case noKeys:
		c.ClientEncryption = nil
		return c, nil
	}
	path, err := filepath.Abs(l.keys)
	if err != nil {
		return store.Config{}, fmt.Errorf("the keys of --%s: %w", flag, err)
	}
	switch info, err := os.Stat(path); {
	case err != nil:
		return store.Config{}, fmt.Errorf("the keys of --%s: %w", flag, err)
	case !info.IsDir():
		return store.Config{}, fmt.Errorf("the keys of --%s: %w: %s is not a directory; want a directory with a file for each age identity, like a mounted Secret",
			flag, store.ErrInvalid, path)
	}
	c.ClientEncryption = &store.ClientEncryption{KeysDir: path}
	return c, nil
}

// parseStore reads one of the forms of --store. credentials is a file or a directory, or empty for the ambient
// identity.
func parseStore(raw, credentials string) (store.Config, error) {
	c, err := parseForm(raw)
	if err != nil {
		return store.Config{}, err
	}
	if credentials != "" {
		if err := addCredentials(c, credentials); err != nil {
			return store.Config{}, err
		}
	}
	return c, c.Validate()
}

func parseForm(raw string) (store.Config, error) {
	switch {
	case raw == "":
		return store.Config{}, fmt.Errorf("%w: empty; %s", store.ErrInvalid, forms)
	case strings.HasPrefix(raw, "{"):
		return store.ParseConfig([]byte(raw))
	case !strings.Contains(raw, "://"):
		return readConfig(raw)
	default:
		return store.ParseURL(raw, os.Getenv)
	}
}

// readConfig reads a file in the format that druid writes for agents.
func readConfig(path string) (store.Config, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return store.Config{}, fmt.Errorf("%w; %s", err, forms)
	}
	if err != nil {
		return store.Config{}, err
	}
	return store.ParseConfig(content)
}

// addCredentials replaces the credentials that a file might have set.
func addCredentials(c store.Config, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	if err := c.UseCredentials(path, info.IsDir()); err != nil {
		return fmt.Errorf("%w; remove --credentials", err)
	}
	return nil
}
