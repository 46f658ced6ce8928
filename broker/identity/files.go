package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"tensorturn/domain"
)

// maxFileBytes bounds every file this package reads; the largest honest one is an owner's certificate chain.
const maxFileBytes = 256 << 10

// writeSecret replaces path in one step with a file of mode 0600, synced before the rename. The umask cannot widen it.
func writeSecret(path string, data []byte) error {
	if err := renameio.WriteFile(path, data, 0o600, renameio.IgnoreUmask()); err != nil {
		return domain.Unavailable("write "+path, "the key file could not be stored", "free disk space or fix the directory's owner", err)
	}
	return nil
}

// readBounded reads a small file.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(b) > maxFileBytes {
		return nil, domain.Integrity("read "+path, fmt.Sprintf("larger than %d bytes", maxFileBytes), "this is not a file we wrote; restore it from a backup")
	}
	return b, nil
}

// readSecret reads a file that must be private: one that others may read is refused, as ssh does, since the secret may
// already be known.
func readSecret(path string) ([]byte, error) {
	b, err := readPrivate(path)
	if errors.Is(err, fs.ErrPermission) { // not damage: nothing is to be made anew
		return nil, domain.Denied("read "+path, "this user may not read it", "run as the user who owns the folder; else: chmod 600 "+path)
	}
	return b, err
}

func readPrivate(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, domain.Denied("read "+path, fmt.Sprintf("others on this machine can read it (mode %04o)", st.Mode().Perm()),
			"chmod 600 "+path+" if you trust them, else make a new key")
	}
	return readBounded(path)
}

// syncDir makes names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// cause is what the system says, without the path.
func cause(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// createSecret makes path durable with data unless it exists already: the first of several callers wins.
func createSecret(path string, data []byte) error {
	t, err := renameio.NewPendingFile(path,
		renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(0o600), renameio.IgnoreUmask())
	if err == nil {
		defer t.Cleanup()
		if _, err = t.Write(data); err == nil {
			err = t.Sync()
		}
		if err == nil {
			// A hard link, unlike a rename, never replaces what another caller has put there.
			err = os.Link(t.Name(), path)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return domain.Unavailable("write "+path, "the key file could not be stored", "free disk space or fix the directory's owner", err)
	}
	return syncDir(filepath.Dir(path))
}
